"""The gate before a provider: shut for all workers of a store, tried by one, opened for all."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest

from evervec import Evervec, ProviderUnavailable, RateLimited, Status
from evervec.embedders.base import PROBE
from evervec.embedding import gate
from support.processes import until
from support.provider import EVERY_CALL, EVERY_TEXT, Behaviour, ProviderServer
from support.world import KIND, START, Clock, World, add_all, job_of, work

Open = Callable[..., Evervec]
TEXTS = [f"text {n}" for n in range(20)]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ProviderServer]:
    with ProviderServer(keep_texts=True, clock=clock) as server:
        yield server


@pytest.fixture
def server_in_time() -> Iterator[ProviderServer]:
    """One whose log has the time of day."""
    with ProviderServer() as server:
        yield server


@pytest.fixture
def two(opened: Open, clock: Clock) -> tuple[Evervec, Evervec]:
    """One store, opened twice, with jobs that wait."""
    first, second = (opened(clock=clock, provider_seconds=0.2) for _ in range(2))
    add_all(first, KIND, *TEXTS)
    return first, second


def attempts(ev: Evervec) -> set[int]:
    return {job.attempts for job in ev.queue.jobs(limit=1000)}


def starts(server: ProviderServer) -> list[float]:
    return [call.start for call in server.calls()]


# ---- outages

OUTAGES = [
    pytest.param({"key": "sk-other"}, "rejected the API key", id="key"),
    pytest.param({"quota_used_up": True}, "quota", id="quota"),
    pytest.param({"openai_models": {}}, "does not exist", id="model"),
    pytest.param({"fail": EVERY_TEXT}, "500", id="500"),
    pytest.param({"proxy": EVERY_CALL}, "502", id="proxy"),
    pytest.param({"hang": EVERY_TEXT}, "did not respond", id="hang"),
    pytest.param({"wrong_dimensions": EVERY_TEXT}, "dimensions", id="dimensions"),
    pytest.param({"nan": EVERY_TEXT}, "known good text", id="NaN"),
]


@pytest.mark.parametrize(("behaviour", "words"), OUTAGES)
def test_an_outage_shuts_the_gate_for_all_and_spends_no_attempt(
    two: tuple[Evervec, Evervec],
    server: ProviderServer,
    clock: Clock,
    behaviour: dict[str, Any],
    words: str,
) -> None:
    first, second = two
    server.behave(**behaviour)
    result = first.process_all()
    assert (result.processed, result.failed, result.errors) == (0, 0, [])
    calls = server.seen().calls
    assert second.process_all().processed == first.process_all().processed == 0
    assert server.seen().calls == calls  # nobody tries it
    for ev in two:
        stats = ev.queue.stats()
        assert (stats.pending, stats.processing, stats.failed) == (20, 0, 0)
        assert stats.gate is not None
        assert stats.gate.state == "outage"
        assert words in stats.gate.reason
        assert (stats.gate.since, stats.gate.until) == (clock.now, clock.now + 1)
    assert attempts(first) == {0}
    assert words in (job_of(first, "0").error or "")  # and the job says what it waits for


def test_a_provider_that_is_away_is_tried_by_one_at_growing_intervals(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    server.behave(openai_models={})
    for _ in range(4 * 400):
        for ev in two:
            work(ev)
        clock.move(0.25)
    met, *probes = server.calls()
    assert met.start == START
    gaps = [later - earlier for earlier, later in pairwise(starts(server))]
    for gap, wanted in zip(gaps, [1, 2, 4, 8, 16, 32, 60, 60, 60], strict=False):
        assert wanted <= gap <= 1.2 * wanted + 0.25
    assert 9 <= len(gaps) <= 12
    gate = two[1].queue.stats().gate
    assert gate is not None
    assert gate.tries == len(probes) + 1
    assert attempts(two[0]) == {0}


def test_it_goes_on_by_itself_when_the_provider_is_back(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    first, second = two
    server.behave(key="sk-other")
    work(first)
    work(second)
    server.behave(key=None)
    work(second)
    assert server.seen().embedded == 0
    clock.move(1.3)
    assert work(second).succeeded == 20
    assert [call.texts for call in server.calls()][1:] == [(PROBE,), tuple(TEXTS)]
    for ev in two:
        assert ev.queue.stats().gate is None
    assert attempts(first) == {1}
    assert {len(first.queue.history(KIND, str(n))) for n in range(20)} == {1}
    assert first.verify().clean


def test_a_probe_on_demand_opens_the_gate_for_all_before_the_pause_is_over(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    first, second = two
    server.behave(key="sk-other")
    first.process_all()
    second.process_all()
    assert isinstance(first.provider.probe_now(), ProviderUnavailable)
    gate = second.queue.stats().gate
    assert gate is not None
    assert gate.tries == 2
    server.behave(key=None)
    assert first.provider.probe_now() is None
    assert second.queue.stats().gate is None
    left = gate.until - clock()
    assert second.provider.waits < left / 2, "it waits for its turn, not for the pause"
    clock.move(second.provider.waits)
    assert second.process_all().succeeded == len(TEXTS)


def test_who_has_not_been_there_finds_the_gate_shut(
    two: tuple[Evervec, Evervec], opened: Open, server: ProviderServer, clock: Clock
) -> None:
    server.behave(key="sk-other")
    work(two[0])
    calls = server.seen().calls
    third = opened(clock=clock)
    assert work(third).processed == 0
    assert server.seen().calls == calls
    assert third.queue.stats().gate == two[0].queue.stats().gate


def test_a_call_that_was_about_to_begin_finds_the_gate_shut(file_world: World) -> None:
    ready, other = file_world.ev.provider, file_world.open().provider
    assert ready.try_resume()

    def away(_: Sequence[str]) -> None:
        raise ProviderUnavailable("the provider is away")

    file_world.embedder.before = away
    with pytest.raises(ProviderUnavailable):
        other.embed(["one"])
    with pytest.raises(ProviderUnavailable):
        ready.embed(["two"])
    assert file_world.embedder.texts == ["one"]


def test_another_model_has_a_gate_of_its_own(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    openai, ollama = opened("openai", clock=clock), opened("ollama", store="memory:", clock=clock)
    server.behave(key="sk-other")
    for ev in (openai, ollama):
        add_all(ev, KIND, "text")
    assert work(openai).processed == 0
    assert work(ollama).processed == 1


def tries_too(
    server: ProviderServer,
    first: Evervec,
    second: Evervec,
    meanwhile: Callable[[], object] = lambda: None,
) -> bool:
    """Whether the second asks the provider while a probe of the first is under way."""
    server.behave(slots=0)
    calls = server.seen().calls
    one, other = (threading.Thread(target=ev.provider.try_resume) for ev in (first, second))
    one.start()
    until(lambda: server.seen().calls == calls + 1)
    meanwhile()
    other.start()
    until(lambda: not other.is_alive() or server.seen().calls > calls + 1)
    asked = server.seen().calls > calls + 1
    server.behave(slots=None)
    one.join()
    other.join()
    return asked


@pytest.fixture
def waiting(opened: Open, server: ProviderServer, clock: Clock) -> tuple[Evervec, Evervec]:
    """Two openings whose provider is back, and could be tried by now."""
    two = opened(clock=clock), opened(clock=clock)
    add_all(two[0], KIND, *TEXTS)
    server.behave(key="sk-other")
    for ev in two:
        work(ev)
    server.behave(key=None)
    clock.move(2)
    return two


def test_only_one_opening_tries_at_a_time(
    waiting: tuple[Evervec, Evervec], server: ProviderServer
) -> None:
    assert not tries_too(server, *waiting)


def probe_lock(ev: Evervec) -> str:
    holder = ev.store.shared.lock_holder(f"probe {ev.provider.name}")
    assert holder is not None
    return holder.token


def test_only_one_tries_at_a_time_however_long_it_takes(
    waiting: tuple[Evervec, Evervec],
    server: ProviderServer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A provider that hangs holds up a probe for as long as a call may take, and again."""
    monkeypatch.setattr(gate, "_HELD", 0.2)

    def long_after() -> None:
        seen = set[str]()
        while len(seen) < 6:  # each time almost until the lock expires
            clock.move(0.19)
            seen.add(probe_lock(waiting[0]))
            until(lambda: probe_lock(waiting[0]) not in seen, "the lock to be renewed")

    assert not tries_too(server, *waiting, long_after)


def test_a_worker_killed_while_it_tries_keeps_the_others_waiting_for_seconds_only(
    waiting: tuple[Evervec, Evervec],
    server: ProviderServer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However long a call may take: nobody waits for a probe whose process is gone."""
    first, second = waiting
    assert first.settings.provider_seconds == 60

    def killed() -> None:
        monkeypatch.setattr(
            first.store.shared, "lock", lambda *_: None
        )  # it renews nothing any more
        clock.move(5.1)

    assert tries_too(server, first, second, killed)


def test_the_gate_is_open_before_another_may_try(
    two: tuple[Evervec, Evervec],
    server: ProviderServer,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.behave(down=True)
    work(two[0])
    server.behave(down=False)
    clock.move(100)
    unlock, found = two[0].store.shared.unlock, []

    def noting(name: str, token: str) -> None:
        if name.startswith("probe"):
            found.append(two[1].queue.stats().gate)
        unlock(name, token)

    monkeypatch.setattr(two[0].store.shared, "unlock", noting)
    work(two[0])
    assert found == [None]


def test_two_workers_of_one_opening_do_not_try_at_once_either(
    waiting: tuple[Evervec, Evervec], server: ProviderServer
) -> None:
    assert not tries_too(server, waiting[0], waiting[0])


def test_when_the_one_who_tried_is_gone_another_tries(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    """The first must not keep the others away with a lock that it needs no more."""
    first, second = opened(clock=clock), opened(clock=clock)
    add_all(first, KIND, *TEXTS)
    server.behave(key="sk-other")
    work(first)
    clock.move(2)
    assert not first.provider.try_resume()
    first.close()
    server.behave(key=None)
    clock.move(3)
    assert work(second).succeeded == 20


def test_a_probe_that_hangs_does_not_keep_a_worker_from_ending(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened(provider_seconds=3.0, backoff_seconds=0.01, drain_seconds=0.1)
    add_all(ev, KIND, *TEXTS)
    server.behave(key="sk-other")
    with ev.worker():
        until(lambda: ev.queue.stats().gate is not None)
        server.behave(key=None, hang=EVERY_TEXT)
        until(lambda: server.seen().in_flight == 1)
        rescue = threading.Timer(1.5, server.behave, kwargs={"down": True})
        rescue.start()
    rescue.cancel()
    assert not server.behaviour.down, "it waited for the probe"


def test_workers_in_threads_go_on_after_an_outage(opened: Open, server: ProviderServer) -> None:
    two = [opened(backoff_seconds=0.01, provider_batch=1) for _ in range(2)]
    server.behave(down=True)
    tickets = add_all(two[0], KIND, *TEXTS)
    with two[0].worker(), two[1].worker():
        until(lambda: (gate := two[0].queue.stats().gate) and gate.tries > 2)
        server.behave(down=False)
        for ticket in tickets:
            assert two[1].wait(ticket).status is Status.DONE
    assert attempts(two[0]) == {1}


# ---- searches meanwhile


@pytest.mark.parametrize(("behaviour", "words"), OUTAGES)
def test_search_answers_from_text_at_once_while_the_gate_is_shut(
    opened: Open,
    server: ProviderServer,
    clock: Clock,
    behaviour: dict[str, Any],
    words: str,
) -> None:
    two = [opened(clock=clock, provider_seconds=0.2, query_seconds=0.2) for _ in range(2)]
    add_all(two[0], KIND, "an apple", "a pear")
    work(two[0])
    for ev in two:
        assert ev.search("apple").via == "hybrid"
    server.behave(**behaviour)
    two[0].add(KIND, "a plum", id="3")
    work(two[0])
    calls = server.seen().calls
    for ev in two:
        hits = ev.search("apple")
        assert (hits.via, hits.version, [hit.id for hit in hits]) == ("text", None, ["0"])
        assert ev.search("apple", mode="semantic").via == "text"
        assert [hit.id for hit in ev.search("plum")] == ["3"]
    assert server.seen().calls == calls  # nobody was asked in vain
    server.behaviour = Behaviour()
    clock.move(2)
    work(two[1])
    for ev in two:
        assert ev.search("plum").via == "hybrid"


def test_a_search_that_meets_the_outage_first_shuts_the_gate_for_the_workers(
    two: tuple[Evervec, Evervec], server: ProviderServer
) -> None:
    first, second = two
    work(first)
    server.behave(key="sk-other")
    assert first.search("text 1").via == "text"
    first.add(KIND, "more", id="more")
    calls = server.seen().calls
    assert work(second).processed == 0
    assert server.seen().calls == calls


def test_a_provider_that_hangs_does_so_for_one_search_and_not_for_the_next(
    two: tuple[Evervec, Evervec], opened: Open, server: ProviderServer
) -> None:
    work(two[0])
    ev = opened(query_seconds=0.1, backoff_seconds=60.0)
    server.behave(hang=EVERY_TEXT)
    assert ev.search("text 1").via == "text"
    calls = server.seen().calls
    assert ev.search("text 1").via == "text"
    assert server.seen().calls == calls


def test_a_question_that_is_refused_is_no_outage(
    two: tuple[Evervec, Evervec], server: ProviderServer
) -> None:
    work(two[0])
    server.behave(refuse="poison")
    assert two[0].search("poison").via == "text"
    assert two[0].search("text 1").via == "hybrid"
    assert two[0].queue.stats().gate is None


# ---- limits


def test_a_pause_that_was_asked_for_is_kept_by_all(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    first, second = two
    end = clock.now + 30
    server.behave(storm_until=end)
    work(first)
    gate = second.queue.stats().gate
    assert gate is not None
    assert (gate.state, gate.until) == ("limited", end)
    assert "Rate limit reached" in gate.reason
    while clock.now < end + 8:
        clock.move(0.5)
        for ev in two:
            work(ev)
    _, probe, *others = server.calls()
    assert probe.texts == (PROBE,)
    assert end <= probe.start <= end + 6.5
    assert [call.texts for call in others] == [tuple(TEXTS)]
    assert server.seen().statuses == {429: 1, 200: 2}
    assert attempts(first) == {1}


def test_the_next_storm_is_kept_as_the_first_was(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    """Who was there at the first must not take the second for it."""
    first, _ = two
    for n in range(4):
        add_all(first, f"kind{n}", *TEXTS)
        end = clock.now + 30
        server.forget()
        server.behave(storm_until=end)
        while first.queue.stats().pending:
            for ev in two:
                work(ev)
            clock.move(1)
            assert clock.now < end + 10
        early = [call.start for call in server.calls() if call.start < end]
        assert len(early) == 1  # the one that was told


def test_the_last_call_that_a_limit_allows_shuts_the_gate_too(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    first, second = two
    server.behave(requests=1, window=30.0)
    assert work(first).succeeded == 20
    second.add(KIND, "more", id="more")
    assert work(second).processed == 0
    gate = second.queue.stats().gate
    assert gate is not None
    assert (gate.state, gate.until) == ("limited", clock.now + 30)
    assert server.seen().statuses == {200: 1}  # no 429 was needed to learn it
    clock.move(37)
    server.behave(requests=None)
    assert work(second).succeeded == 1


def test_a_limit_that_does_not_say_for_how_long_is_tried_at_growing_intervals(
    two: tuple[Evervec, Evervec], server: ProviderServer, clock: Clock
) -> None:
    server.behave(requests=0, tells=())
    for _ in range(4 * 20):
        work(two[0])
        clock.move(0.25)
    gaps = [later - earlier for earlier, later in pairwise(starts(server))]
    for gap, wanted in zip(gaps, [1, 2, 4], strict=False):
        assert wanted <= gap <= 1.2 * wanted + 0.25
    gate = two[0].queue.stats().gate
    assert gate is not None
    assert gate.state == "limited"


def test_a_longer_pause_is_not_shortened_by_another_call_that_met_it(file_world: World) -> None:
    """Both calls are under way when the first is refused."""
    first, second = file_world.ev.provider, file_world.open().provider

    def refuse(texts: Sequence[str]) -> None:
        if texts == ["second"]:
            with pytest.raises(RateLimited):
                first.embed(["first"])
        raise RateLimited(30 if texts == ["first"] else 5, "too many calls")

    file_world.embedder.before = refuse
    with pytest.raises(RateLimited):
        second.embed(["second"])
    assert file_world.embedder.texts == ["second", "first"]
    gate = first.gate()
    assert gate is not None
    assert gate.until == file_world.clock.now + 30


# ---- back to work, but not all at once


@pytest.mark.parametrize("who", ["met the trouble", "found the gate shut", "tried it again"])
def test_a_worker_comes_back_with_one_call_then_two_then_four(
    opened: Open, server_in_time: ProviderServer, who: str
) -> None:
    server = server_in_time
    settings = {"openai_url": server.openai_url, "provider_batch": 1, "backoff_seconds": 0.1}
    first, second = (opened(**settings) for _ in range(2))
    server.behave(key="sk-other")
    add_all(first, KIND, *(f"text {n}" for n in range(40)))
    first.process_all()
    assert not second.provider.try_resume()
    server.behave(key=None, latency=0.02)
    back = first if who == "met the trouble" else second
    tries = second if who == "tried it again" else first
    until(tries.provider.try_resume)
    server.forget()
    with back.worker(concurrency=16):
        until(lambda: back.queue.stats().done == 40)
    calls = server.calls()
    ends = sorted(call.end for call in calls if call.end is not None)
    for ended, most in enumerate([1, 2, 4, 8]):
        under_way = [call for call in calls if call.start < ends[ended]]
        assert len(under_way) - ended <= most
    assert server.seen().peak > 8  # and then it makes use of all


@pytest.mark.parametrize(("embedder", "status"), [("openai", 429), ("ollama", 503)])
def test_a_provider_that_refuses_what_is_too_much_is_soon_asked_for_what_it_serves(
    opened: Open, server_in_time: ProviderServer, embedder: str, status: int
) -> None:
    server, concurrency = server_in_time, 16
    ev = opened(
        embedder, openai_url=server.openai_url, ollama_url=server.url, provider_batch=1,
        backoff_seconds=0.1,
    )  # fmt: skip
    server.behave(slots=4, full_status=status, latency=0.01)
    add_all(ev, KIND, *(f"text {n}" for n in range(300)))
    with ev.worker(concurrency=concurrency):
        until(lambda: ev.queue.stats().done == 300)
    assert 1 <= server.seen().statuses[status] <= concurrency  # each of them taught it
    assert ev.queue.stats().failed == 0
    assert attempts(ev) == {1}


def test_workers_come_back_one_after_the_other(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    """Each at a time of its own, up to a fifth of the pause after its end."""
    evs = [opened(clock=clock) for _ in range(6)]
    add_all(evs[0], KIND, *TEXTS)
    server.behave(storm_until=clock.now + 20)
    for ev in evs:
        work(ev)
    clock.move(20)
    back: dict[int, float] = {}
    for _ in range(41):
        for n, ev in enumerate(evs):
            if n not in back and ev.provider.try_resume():
                back[n] = clock.now
        clock.move(0.1)
    assert len(back) == 6
    assert len(set(back.values())) >= 4
