"""What provider calls cost: by tenant, kind, model and day, and a cap for the day."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evervec import Evervec
from evervec.embedders.base import PROBE
from evervec.model.usage import Spend
from support.provider import EVERY_CALL, Behaviour, ProviderServer, count_tokens
from support.world import DAY, KIND, START, Clock, add_all, work

Open = Callable[..., Evervec]
FIRST_DAY, SECOND_DAY = "2027-01-15", "2027-01-16"
SMALL = "text-embedding-3-small"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ProviderServer]:
    with ProviderServer(clock=clock) as server:
        yield server


def words(n: int) -> str:
    """Texts of all lengths."""
    return f"text {n} " + "word " * (n % 17)


def spent(ev: Evervec, since: str = "2000-01-01") -> list[Spend]:
    return ev.store.shared.spend(None, since)


def in_history(ev: Evervec, kind: str, count: int) -> int:
    return sum(attempt.tokens for n in range(count) for attempt in ev.queue.history(kind, n))


def test_spend_adds_up_to_what_the_server_counted(
    opened: Open, server: ProviderServer, clock: Clock, tmp_path: Path
) -> None:
    settings = {"clock": clock, "price_per_million": 20.0, "provider_batch": 7, "batch_size": 9}
    a, b = (opened(tenant=tenant, **settings) for tenant in "ab")
    for ev in (a, b):
        for kind in ("note", "task"):
            add_all(ev, kind, *(f"{ev.tenant} {kind} {words(n)}" for n in range(40)))
    a.process_all()
    rows = spent(a)
    assert {(s.day, s.tenant, s.kind, s.model) for s in rows} == {
        (FIRST_DAY, tenant, kind, SMALL) for tenant in "ab" for kind in ("note", "task")
    }
    seen = server.seen()
    assert sum(s.tokens for s in rows) == seen.tokens
    assert sum(s.calls for s in rows) == pytest.approx(seen.calls)
    assert sum(s.money for s in rows) == pytest.approx(seen.tokens * 20 / 1e6)
    for ev in (a, b):
        own = ev.queue.stats().spent_today
        assert own == [s for s in rows if s.tenant == ev.tenant]
        for s in own:
            assert s.tokens == pytest.approx(
                sum(count_tokens(f"{ev.tenant} {s.kind} {words(n)}") for n in range(40)), rel=0.1
            )


def test_the_tokens_of_attempts_add_up_too(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock, provider_batch=7, chunk_tokens=16)
    add_all(ev, KIND, *(f"{words(n)} {n}\n\n{n}: {words(n)}" for n in range(40)))
    ev.process_all()
    assert in_history(ev, KIND, 40) == server.seen().tokens


def test_a_text_that_records_share_is_counted_for_one_of_them(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock)
    add_all(ev, KIND, *["the same text for all"] * 3)
    ev.process_all()
    assert server.seen().embedded == 1
    assert in_history(ev, KIND, 3) == server.seen().tokens


def test_what_finding_a_bad_text_cost_is_counted_too(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock, max_attempts=1)
    server.behave(fail="poison")
    add_all(ev, KIND, *(words(n) for n in range(9)), "poison")
    assert ev.process_all().failed == 1
    (row,) = spent(ev)
    assert row.tokens == server.seen().tokens
    assert row.calls == pytest.approx(server.seen().calls)


def test_what_was_spent_before_a_call_met_a_limit_is_counted_too(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock)
    add_all(ev, KIND, *(words(n) for n in range(8)))
    limited = Behaviour(requests=0)
    server.script(Behaviour(fail=EVERY_CALL), Behaviour(), Behaviour(), limited)
    work(ev)
    assert server.seen().statuses == {500: 1, 200: 2, 429: 1}
    assert sum(s.tokens for s in spent(ev)) == server.seen().tokens


def test_each_day_and_each_model_has_sums_of_its_own(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock)
    ev.add(KIND, "today", id="1")
    ev.process_all()
    clock.move(DAY)
    ev.add(KIND, "tomorrow it is", id="2")
    ev.process_all()
    assert [(s.day, s.tokens) for s in spent(ev)] == [
        (SECOND_DAY, count_tokens("tomorrow it is")), (FIRST_DAY, count_tokens("today"))
    ]  # fmt: skip
    assert [s.day for s in ev.queue.stats().spent_today] == [SECOND_DAY]
    other = opened("ollama:all-minilm", store="memory:", clock=clock, dimensions=0)
    other.add(KIND, "the same for another", id="1")
    other.process_all()
    (row,) = spent(other)
    assert (row.model, row.tokens) == ("all-minilm", count_tokens("the same for another"))


def test_what_costs_nothing_is_not_counted(opened: Open, clock: Clock) -> None:
    ev = opened("hashing", store="memory:", clock=clock)
    ev.add(KIND, "text", id="1")
    ev.process_all()
    assert ev.queue.stats().spent_today == spent(ev) == []


def test_what_did_not_change_costs_nothing(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock)
    for _ in range(3):
        ev.add(KIND, "text", id="1")
        ev.process_all()
    assert server.seen().calls == 1
    assert sum(s.calls for s in spent(ev)) == 1


# ---- a cap for the day


@pytest.mark.parametrize(
    "cap",
    [
        {"daily_tokens": 100},
        {"daily_money": 0.002, "price_per_million": 20.0},
    ],
    ids=["tokens", "money"],
)
def test_a_cap_pauses_embedding_says_so_and_ends_with_the_day(
    opened: Open, server: ProviderServer, clock: Clock, cap: dict[str, float]
) -> None:
    two = [opened(clock=clock, batch_size=1, concurrency=1, **cap) for _ in range(2)]
    add_all(two[0], KIND, *(f"{n:03} " + "a" * 35 for n in range(60)))  # ten tokens each
    for ev in two:
        ev.process_all()
    spent = server.seen().tokens
    assert 100 <= spent <= 140  # what was under way is brought to its end
    for ev in two:
        stats = ev.queue.stats()
        assert (stats.done, stats.pending, stats.failed) == (spent // 10, 60 - spent // 10, 0)
        assert stats.capped is not None
        assert next(iter(cap)) in stats.capped
        assert "midnight UTC" in stats.capped
        assert stats.gate is None
    assert {job.attempts for job in two[0].queue.jobs(status="pending")} == {0}
    clock.now = START - START % DAY + DAY - 1
    two[0].process_all()
    assert server.seen().tokens == spent
    clock.move(1)
    assert two[0].queue.stats().capped is None
    two[1].process_all()
    assert spent + 100 <= server.seen().tokens <= spent + 140


def test_a_worker_in_its_thread_waits_for_the_next_day(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = opened(clock=clock, batch_size=1, daily_tokens=1)
    first, second = add_all(ev, KIND, "one", "two")
    with ev.worker():
        ev.wait(first)
        assert ev.queue.stats().capped
        clock.move(DAY)
        ev.wait(second)


def test_a_search_answers_by_meaning_when_the_cap_is_reached(opened: Open, clock: Clock) -> None:
    ev = opened(clock=clock, daily_tokens=1)
    ev.add(KIND, "text", id="1")
    work(ev)
    assert ev.queue.stats().capped
    assert ev.search("text").via == "hybrid"


def test_a_probe_is_a_plain_text_that_costs_next_to_nothing() -> None:
    assert count_tokens(PROBE) < 5
