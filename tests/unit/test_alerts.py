"""Alerts: once when a problem begins and once when it is over, however many processes look."""

import logging
import threading
from collections.abc import Iterator

import pytest

from evervec import Evervec, IndexUnavailable, ProviderUnavailable
from evervec.maintenance.alerts import Alerts, Problem
from evervec.stores.values import Note
from support.engines import OWN_PAIRS, SHARED_PAIRS
from support.processes import until
from support.webhook import Webhook
from support.world import KIND, World, add_all, claim_one, work

SLOW = Problem("lag", "it is slow")


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    made = Webhook()
    yield made
    made.close()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Alerts and their ends since the last call."""
    found = [record.getMessage() for record in caplog.records]
    caplog.clear()
    return [text for text in found if text.startswith("[")]


def fail(ev: Evervec, count: int) -> None:
    for n in range(count):
        ev.add(KIND, f"text {n}", id=n)
        ev.queue.fail(claim_one(ev), "bad", permanent=True)


# what is told


def test_failed_jobs(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    fail(memory.ev, 11)
    memory.ev._housekeeping.sweep()
    (record,) = [r for r in caplog.records if "ALERT" in r.getMessage()]
    assert (record.getMessage(), record.__dict__["failed"]) == ("[ALERT] 11 failed jobs", 11)
    memory.clock.move(90)
    memory.ev.queue.retry_failed()
    caplog.clear()
    memory.ev._housekeeping.sweep()
    assert said(caplog) == ["[CLEAR] 11 failed jobs: over after 90 s"]


def test_lag_of_live_work_but_not_of_a_backfill(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    memory.ev.add(KIND, "behind all others", priority=memory.ev.settings.backfill_priority)
    memory.ev.add(KIND, "later", delay=1000)
    memory.clock.move(1500)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == []
    memory.ev.queue.pause()
    memory.clock.move(200)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == ["[ALERT] due work has waited since 08:16 UTC (the queue is paused)"]
    memory.ev.queue.resume()
    work(memory.ev)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == [
        "[CLEAR] due work has waited since 08:16 UTC (the queue is paused): over after 700 s"
    ]


def test_a_provider_that_is_away(memory: World, caplog: pytest.LogCaptureFixture) -> None:
    def away(_: object) -> None:
        raise ProviderUnavailable("nobody answers")

    memory.embedder.before = away
    add_all(memory.ev, KIND, "alpha")
    work(memory.ev)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == [], "it may be short"
    memory.clock.move(60)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == ["[ALERT] the provider hashing is unavailable: nobody answers"]
    memory.embedder.before = None
    memory.clock.move(60)
    work(memory.ev)
    memory.ev._housekeeping.sweep()
    assert said(caplog) == [
        "[CLEAR] the provider hashing is unavailable: nobody answers: over after 120 s"
    ]


def test_an_index_that_is_away(
    memory: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: float) -> None:
        raise IndexUnavailable("no answer")

    with monkeypatch.context() as patched:
        patched.setattr(memory.ev.index, "maintain", away)
        memory.ev._housekeeping.sweep()
        memory.clock.move(60)
        memory.ev._housekeeping.sweep()
        assert said(caplog) == ["[ALERT] the index is unavailable: no answer"]
    memory.ev._housekeeping.sweep()
    assert said(caplog) == ["[CLEAR] the index is unavailable: no answer: over after 60 s"]


def test_what_one_began_to_watch_another_goes_on_with(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A problem has to last for a while, whoever takes the lead meanwhile."""
    one, two = (
        memory.ev._housekeeping.alerts,
        memory.tenant("other")._housekeeping.alerts,
    )
    slow = Problem("index", "it is away", patience=100)
    one.update([slow])
    assert one.lasting() == []
    memory.clock.move(100)
    two.update([slow])
    one.update([slow])
    assert said(caplog) == ["[ALERT] it is away"]
    two.update([])
    one.update([slow])
    two.update([])
    assert said(caplog) == ["[CLEAR] it is away: over after 100 s"], "and the second was short"


def test_what_is_set_to_nothing_is_not_told(tmp_path: object) -> None:
    quiet = {f"alert_{name}_seconds": 0 for name in ("lag", "away", "transaction")}
    world = World(("memory", "sqlite"), tmp_path, **quiet)  # type: ignore[arg-type]
    world.ev.add(KIND, "alpha")
    world.clock.move(10_000)
    world.ev._housekeeping.sweep()
    assert world.ev._housekeeping.alerts.lasting() == []
    world.close()


# by whom


@pytest.mark.parametrize(
    "shared_world",
    [pair for pair in OWN_PAIRS if pair in SHARED_PAIRS],
    indirect=True,
    ids="-".join,
)
def test_two_processes_tell_once(
    shared_world: World, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    one = shared_world.open(alert_url=webhook.url, alert_failed=1)
    two = shared_world.open(alert_url=webhook.url, alert_failed=1)
    two.queue.worker = "another:1"
    fail(one, 2)
    for _ in range(3):
        for ev in (one, two):  # each takes the lead in turn
            shared_world.clock.move(61)
            assert ev._housekeeping.sweep()
            ev._housekeeping.alerts.wait()
    assert said(caplog) == ["[ALERT] 2 failed jobs"]
    assert [alert.name for alert in two._housekeeping.alerts.lasting()] == ["failed"]
    two.queue.retry_failed()
    for ev in (one, two, one):
        shared_world.clock.move(61)
        ev._housekeeping.sweep()
        ev._housekeeping.alerts.wait()
    assert [text.partition(":")[0] for text in said(caplog)] == ["[CLEAR] 2 failed jobs"]
    assert one._housekeeping.alerts.lasting() == []
    assert webhook.told == [("failed", "begun"), ("failed", "over")]
    begun, over = webhook.posted
    assert begun["text"] == "[ALERT] 2 failed jobs"
    assert begun["store"] == one.store.url
    assert begun["episode"] == over["episode"]
    assert begun["until"] is None
    assert over["since"] == begun["since"] < over["until"]


def test_of_two_that_notice_at_the_same_moment_one_tells(
    memory: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes between the first one's look at the note and its change."""
    alerts, store = memory.ev._housekeeping.alerts, memory.ev.store
    rival = memory.tenant("other")._housekeeping.alerts
    read = store.shared.note

    def overtaken(name: str) -> Note | None:
        note = read(name)
        monkeypatch.setattr(store.shared, "note", read)
        rival.update([SLOW])
        return note

    monkeypatch.setattr(store.shared, "note", overtaken)
    alerts.update([SLOW])
    assert said(caplog) == ["[ALERT] it is slow"]


def test_a_message_that_one_is_posting_is_not_posted_by_another(
    memory: World, webhook: Webhook
) -> None:
    ev = memory.open(alert_url=webhook.url)
    alerts, rival = ev._housekeeping.alerts, Alerts(ev.store, ev.settings)
    webhook.may_answer.clear()
    alerts.update([SLOW])
    alerts.post_soon()
    until(lambda: webhook.paths, "the request")
    rival.post()
    rival.post_soon()
    webhook.may_answer.set()
    alerts.wait()
    rival.post()
    assert webhook.told == [("lag", "begun")]
    assert len(webhook.paths) == 1


# the webhook


def test_a_webhook_that_fails_is_logged_without_its_secret_and_tried_again(
    memory: World, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ev = memory.open(alert_url=webhook.url)
    alerts = ev._housekeeping.alerts
    alerts.update([SLOW])
    for status in (500, 302):
        webhook.status = status
        alerts.post()
        assert f"could not be posted to 127.0.0.1 and will be retried: status {status}" in (
            caplog.text
        )
    alerts.update([])
    webhook.status = 200
    alerts.post()
    assert webhook.told == [("lag", "begun"), ("lag", "over")]
    assert not any(path.startswith("GET") for path in webhook.paths), "redirects are not followed"
    assert "s3cret" not in caplog.text + repr(ev.settings)
    assert "t0ken" not in caplog.text + repr(ev.settings)
    assert ev.store.shared.note("alerts") is None, "nothing is left to tell"


def test_a_webhook_that_nobody_answers_at(
    memory: World, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    url = webhook.url
    webhook.close()
    alerts = memory.open(alert_url=url)._housekeeping.alerts
    alerts.update([SLOW])
    alerts.post()
    assert "retried: ConnectionRefusedError" in caplog.text
    assert "s3cret" not in caplog.text


def test_a_webhook_that_hangs_holds_up_nobody(
    memory: World, webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "evervec.maintenance.alerts._POST_SECONDS", 120.0
    )  # longer than anybody waits here
    webhook.may_answer.clear()
    ev = memory.open(alert_url=webhook.url, alert_failed=1)
    fail(ev, 1)
    sweeping = threading.Thread(target=ev._housekeeping.sweep)
    sweeping.start()
    sweeping.join(60)
    assert not sweeping.is_alive()
    until(lambda: webhook.paths, "the request")
    webhook.may_answer.set()


def test_an_address_that_is_none_is_refused_without_being_shown(memory: World) -> None:
    with pytest.raises(ValueError, match=r"alert_url must begin with http") as raised:
        memory.open(alert_url="s3cret")
    assert "s3cret" not in str(raised.value)


def test_old_episodes_make_room_where_a_webhook_never_answers(
    memory: World, webhook: Webhook
) -> None:
    webhook.status = 500
    alerts = memory.open(alert_url=webhook.url)._housekeeping.alerts
    for n in range(120):
        alerts.update([Problem(f"problem {n}", "bad")])
    assert [e.name for e in alerts.lasting()] == ["problem 119"]
    assert len(alerts._episodes()) == 100
