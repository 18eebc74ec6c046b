"""The state of a store in sentences: the worst first, and true."""

from datetime import UTC, datetime

import pytest

from evervec import Evervec, ProviderUnavailable, RateLimited, Sentence
from evervec.embedders.hashing import HashingEmbedder
from evervec.maintenance.alerts import Problem
from evervec.model.history import Counts
from evervec.model.usage import Limits
from evervec.stores.base.history import BucketKey
from support.world import KIND, START, World, add_all, fail_for_good, work


def texts(ev: Evervec, **options: bool) -> list[str]:
    return [sentence.text for sentence in ev.summary(**options)]


def of(ev: Evervec, topic: str, **options: bool) -> Sentence:
    (found,) = [s for s in ev.summary(**options) if s.topic == topic]
    return found


def beat(ev: Evervec, worker: str = "host:1") -> None:
    ev.store.workers.beat(worker, version="0", held=0, done=0)


def test_an_empty_store_says_how_to_begin(world: World) -> None:
    (only,) = world.ev.summary()
    assert (only.level, only.text) == ("ok", "There are no records yet.")
    assert only.hint is not None


def test_when_all_is_well_there_is_one_sentence(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    work(world.ev)
    assert texts(world.ev) == ["All 2 records are searchable."]
    assert texts(world.ev, all_tenants=True) == ["All 2 records are searchable."]
    assert texts(world.ev.of("other")) == ["There are no records yet."]


def test_work_without_a_worker_is_bad(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    first, *_ = world.ev.summary()
    assert (first.level, first.topic) == ("bad", "workers")
    assert first.text == "No worker is running; 2 records wait."
    beat(world.ev)
    assert texts(world.ev) == ["2 records wait.", "2 records in all."]
    world.clock.move(120)
    assert texts(world.ev)[0] == "No worker is running; 2 records wait."


def test_jobs_done_by_push_need_no_worker(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    minute = int(START) // 60 * 60
    world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=1)})
    assert all(sentence.topic != "workers" for sentence in world.ev.summary())


def test_an_outage_comes_first_with_its_beginning_and_what_waits(world: World) -> None:
    add_all(world.ev, KIND, "a")
    work(world.ev)
    add_all(world.ev, KIND, "b", "c")
    beat(world.ev)
    world.ev.provider._gates.shut(ProviderUnavailable("10.0.0.7 answers 503"))
    first, *_ = world.ev.summary()
    assert (first.level, first.topic) == ("bad", "provider")
    assert first.since == datetime.fromtimestamp(START, UTC)
    assert first.text == (
        "hashing:hashing-64 is unavailable since 08:00 UTC: 10.0.0.7 answers 503; 2 records wait; none is lost."
    )
    discreet, *_ = world.ev.summary(discreet=True)
    assert discreet.text == (
        "The embedding provider is unavailable since 08:00 UTC; 2 records wait; none is lost."
    )


def test_a_rate_limit_needs_attention_only(world: World) -> None:
    add_all(world.ev, KIND, "a")
    work(world.ev)
    world.ev.provider._gates.shut(RateLimited(30.0, "slow down"))
    found = of(world.ev, "provider")
    assert found.level == "warn"
    assert (
        found.text == "hashing:hashing-64 asked for a pause of 30 s more: slow down; nothing waits."
    )


def test_dead_letters_are_told_by_their_groups(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    fail_for_good(world.ev, "0")
    fail_for_good(world.ev, "1")
    world.ev.queue.recorder.flush()
    found = of(world.ev, "failures")
    assert (found.level, found.text) == (
        "bad", "2 records failed and wait for you (2 of note: it is bad)."
    )  # fmt: skip
    assert of(world.ev, "failures", discreet=True).text == "2 records failed and wait for you."
    assert all(s.topic != "failures" for s in world.ev.of("other").summary())


def test_one_reason_is_told_once_for_all_kinds_since_the_first_of_them(world: World) -> None:
    for kind, error in (("note", "no such model"), ("page", "no such model"), ("page", "too long")):
        world.ev.add(kind, "a text", id=error)
        (job,) = world.ev.queue.claim(1)
        world.ev.queue.fail(job, error, permanent=True)
        world.ev.queue.recorder.flush()
        world.clock.move(3600)
    found = of(world.ev, "failures")
    assert found.text == (
        "3 records failed and wait for you (2 of note and page: no such model; 1 of page: too long)."
    )
    assert found.since == datetime.fromtimestamp(START, UTC)


def test_more_reasons_than_fit_are_counted(world: World) -> None:
    errors = ["the first", "the second", "the third", "the fourth", "the fifth"]
    add_all(world.ev, KIND, *errors)
    for job, error in zip(world.ev.queue.claim(5), errors, strict=True):
        world.ev.queue.fail(job, error, permanent=True)
    world.ev.queue.recorder.flush()
    assert of(world.ev, "failures").text.endswith("; 2 more reasons).")


def test_jobs_of_two_versions_are_not_called_records(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    work(world.ev)
    world.ev.migrate(HashingEmbedder(32), version="new")
    add_all(world.ev, KIND, "c")
    assert texts(world.ev)[0] == "No worker is running; 2 jobs wait."
    for job in world.ev.queue.claim(1):
        world.ev.queue.fail(job, "no", permanent=True)
    assert of(world.ev, "failures").text.startswith("1 job failed and waits for you")


def test_an_outage_of_two_models_with_one_reason_is_told_once(world: World) -> None:
    add_all(world.ev, KIND, "a")
    work(world.ev)
    beat(world.ev)
    world.ev.migrate(HashingEmbedder(32), version="new")
    reasons = ("answers 503", "answers 503")
    for model, reason in zip(world.ev.models, reasons, strict=True):
        model.provider._gates.shut(ProviderUnavailable(reason))
    (found,) = [s.text for s in world.ev.summary() if s.topic == "provider"]
    assert found.startswith("hashing:hashing-32 and hashing:hashing-64 are unavailable since 08:00")


def test_no_time_left_is_told_during_an_outage_or_a_pause(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    work(world.ev)
    world.ev.migrate(HashingEmbedder(32), version="new")
    while world.ev._lifecycle.step():
        pass
    minute = int(START) // 60 * 60
    world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=2)})
    assert "at the present pace" in of(world.ev, "migration").text
    world.ev.queue.pause()
    assert of(world.ev, "migration").text == "Migration to new: 2 jobs left."
    world.ev.queue.resume()
    world.ev.provider._gates.shut(ProviderUnavailable("answers 503"))
    assert of(world.ev, "migration").text == "Migration to new: 2 jobs left."


def test_no_time_left_is_told_once_nothing_is_done(world: World) -> None:
    add_all(world.ev, KIND, "a")
    work(world.ev)
    world.ev.migrate(HashingEmbedder(32), version="new")
    while world.ev._lifecycle.step():
        pass
    minute = int(START) // 60 * 60
    world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=2)})
    world.clock.move(400)
    assert of(world.ev, "migration").text == "Migration to new: 1 job left."


def test_pauses_are_told(world: World) -> None:
    world.ev.queue.pause()
    for tenant in ("a", "b", "c", "d"):
        world.ev.of(tenant).queue.pause(own=True)
    everyone, tenants = (s.text for s in world.ev.summary(all_tenants=True) if s.topic == "queue")
    assert everyone == "The queue is paused; nothing waits."
    assert tenants == "Tenants are paused: a, b, c and 1 more."
    assert "A tenant is paused: a." in texts(world.ev.of("a"))
    assert not any("tenant" in text for text in texts(world.ev.of("z")))


def test_workers_that_are_gone_are_told_but_not_to_tenants(world: World) -> None:
    beat(world.ev, "host:1")
    world.clock.move(61)
    beat(world.ev, "host:2")
    found = of(world.ev, "workers")
    assert (found.level, found.text) == (
        "warn", "host:1 was last seen at 08:00 UTC; its jobs are taken over by others."
    )  # fmt: skip
    assert all(s.topic != "workers" for s in world.ev.summary(discreet=True))


def test_a_quota_that_is_used_up_is_told(world: World) -> None:
    world.ev.set_limits(Limits(tokens=1))
    world.ev.store.tenants.hold("default", START + 3600)  # type: ignore[attr-defined]
    assert of(world.ev, "quota").text == "Today's quota is used up: jobs wait until 09:00 UTC."


def test_a_migration_is_told_from_its_beginning_to_its_end(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    work(world.ev)
    migration = world.ev.migrate(HashingEmbedder(32), version="new")
    assert "Migration to new: records are being enqueued, 0 jobs so far." in texts(world.ev)
    while world.ev._lifecycle.step():
        pass
    world.clock.move(60)
    minute = int(START) // 60 * 60
    world.ev.store.history.add({BucketKey(minute, "default", KIND): Counts(done=2)})
    left = of(world.ev, "migration").text
    assert left == "Migration to new: 2 jobs left, about 60 s at the present pace."
    work(world.ev)
    assert of(world.ev, "migration").text == "Migration to new: complete, ready to switch."
    migration.switch()
    found = of(world.ev, "migration")
    assert found.text == "new serves; the version before it is kept for a rollback."
    migration.retire()
    assert all(s.topic != "migration" for s in world.ev.summary())


@pytest.mark.parametrize(
    ("name", "topic", "level", "seen"),
    [
        ("index", "index", "bad", "The vector index is unavailable."),
        ("lag", "lag", "warn", None),
        ("streams", "streams", "warn", None),
        ("transaction", "database", "warn", None),
    ],
)
def test_alerts_are_told(
    memory: World, name: str, topic: str, level: str, seen: str | None
) -> None:
    memory.ev._housekeeping.alerts.update([Problem(name, "something at 10.0.0.7")])
    found = of(memory.ev, topic)
    assert (found.level, found.text) == (level, "Something at 10.0.0.7.")
    assert [s.text for s in memory.ev.summary(discreet=True) if s.topic == topic] == (
        [seen] if seen else []
    )


def test_counts_that_are_cut_off_say_so(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("evervec.stores.sql.jobs", "evervec.maintenance.summary"):
        monkeypatch.setattr(f"{module}.MOST_COUNTED", 2)
    add_all(memory.ev, KIND, "a", "b", "c")
    assert texts(memory.ev)[0] == "No worker is running; over 2 records wait."


def test_the_backlog_is_counted_by_tenant(world: World) -> None:
    add_all(world.ev, KIND, *"abcd")
    add_all(world.ev.of("other"), KIND, "e")
    fail_for_good(world.ev, "0")
    world.ev.queue.claim(1)
    pending, processing, failed = world.ev.store.jobs.backlog(None)
    assert (pending, processing, failed) == (3, 1, 1)
    assert sum(world.ev.store.jobs.backlog("other")) == 1
    assert world.ev.store.tenants.records_in_all() == 5
