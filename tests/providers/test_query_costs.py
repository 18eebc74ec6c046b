"""What searches cost: counted like what records cost, and bounded by the same limits."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec, Limits
from evervec.embedders.base import Answer
from evervec.embedding.budget import Budget
from evervec.embedding.query_costs import Minute, QueryRefused
from evervec.errors import StoreError
from evervec.model.history import sum_points
from evervec.model.usage import OF_QUERIES, Spend
from evervec.queue.recorder import FLUSH_SECONDS
from evervec.telemetry.counters import QUOTAS, TOKENS
from support.processes import until
from support.provider import ProviderServer, count_tokens
from support.world import DAY, KIND, START, Clock, World, work

Open = Callable[..., Evervec]
QUERY = "a question of eight tokens or so"
EACH = count_tokens(QUERY)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ProviderServer]:
    with ProviderServer(clock=clock) as server:
        yield server


def with_a_record(ev: Evervec, server: ProviderServer) -> Evervec:
    ev.add(KIND, "a record", id=ev.tenant)
    ev.process_all()
    server.forget()
    return ev


def of_queries(ev: Evervec) -> list[Spend]:
    ev.queue.recorder.flush()
    return [s for s in ev.store.shared.spend(None, "2000-01-01") if s.kind == OF_QUERIES]


def ways(ev: Evervec, count: int, query: str = QUERY) -> list[str]:
    return [ev.search(query).via for _ in range(count)]


def test_queries_are_in_the_spend_the_history_and_the_metric(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, price_per_million=20.0), server)
    before, counted = ev.usage(), sum(TOKENS.sums().values())
    ways(ev, 3)
    ev.of("other").search(QUERY)  # has no vectors: its query is not embedded
    assert server.seen().tokens == 3 * EACH
    (row,) = of_queries(ev)
    assert (row.tenant, row.calls, row.tokens) == ("default", 3, 3 * EACH)
    assert row.money == pytest.approx(3 * EACH * 20 / 1e6)
    assert ev.usage().tokens == before.tokens + 3 * EACH
    assert row in ev.queue.stats().spent_today
    assert sum(TOKENS.sums().values()) == counted + 3 * EACH
    ev.search(QUERY)
    of_queries(ev)
    points = sum_points(ev.history())
    assert points is not None
    assert points.tokens == ev.usage().tokens


def test_a_search_of_asyncio_counts_its_query_once(
    server: ProviderServer, clock: Clock, tmp_path: Path
) -> None:
    async def main() -> None:
        async with evervec.aopen(
            tmp_path / "a.db", embedder="openai", openai_url=server.openai_url, dimensions=8,
            openai_key="sk-right", clock=clock,
        ) as ev:  # fmt: skip
            await ev.add(KIND, "a record", id="1")
            await ev.process_all()
            assert (await ev.search(QUERY)).via == "hybrid"
            (row,) = of_queries(ev.sync)
            assert (row.calls, row.tokens) == (1, EACH)

    asyncio.run(main())


def test_searches_write_nothing_themselves_and_the_sums_are_saved_some_seconds_later(
    opened: Open, server: ProviderServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = with_a_record(opened(clock=clock), server)
    ev.queue.recorder.flush()
    saved: list[tuple[str, float]] = []
    add = ev.store.shared.add_spend

    def add_spend(spent: Sequence[Spend]) -> None:
        saved.extend((threading.current_thread().name, s.calls) for s in spent)
        add(spent)

    monkeypatch.setattr(ev.store.shared, "add_spend", add_spend)
    ways(ev, 100)
    assert saved == []
    clock.move(FLUSH_SECONDS)
    ev.search(QUERY)
    until(lambda: bool(saved))
    assert saved == [("evervec-recorder", 101)]


def test_what_was_not_saved_yet_is_saved_at_the_end(
    opened: Open, server: ProviderServer, clock: Clock, tmp_path: Path
) -> None:
    ev = with_a_record(opened(clock=clock), server)
    ways(ev, 2)
    ev.close()
    assert [s.calls for s in of_queries(opened(clock=clock))] == [2]


def test_an_unavailable_store_loses_no_costs(
    opened: Open, server: ProviderServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ev = with_a_record(opened(clock=clock), server)

    def refuse(spent: Sequence[Spend]) -> None:
        raise StoreError("away")

    ev.search(QUERY)
    with monkeypatch.context() as away:
        away.setattr(ev.store.shared, "add_spend", refuse)
        ev.queue.recorder.flush()
        ev.search(QUERY)
        ev.queue.recorder.flush()
    assert ev.queue.recorder.unsaved("2027-01-15", "default") == (2 * EACH, 0)
    assert [s.calls for s in of_queries(ev)] == [2]


# ---- a tenant's quota


def test_at_its_quota_a_tenant_searches_by_text_and_others_by_meaning(
    opened: Open, server: ProviderServer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    ev = with_a_record(opened(clock=clock), server)
    other = with_a_record(ev.of("other"), server)
    used = ev.usage().tokens
    ev.set_limits(Limits(tokens=used + 3 * EACH))
    refusals = QUOTAS.sums().get(("tokens",), 0)
    with caplog.at_level(logging.WARNING, "evervec"):
        assert ways(ev, 10) == ["hybrid"] * 3 + ["text"] * 7
        assert ev.search("record", mode="semantic").via == "text"
        assert [hit.id for hit in ev.search("record")] == ["default"]
    assert server.seen().calls == 3
    assert ways(other, 5) == ["hybrid"] * 5
    assert QUOTAS.sums()["tokens",] == refusals + 9
    (said,) = caplog.messages  # not for each search
    assert "tenant 'default' has used" in said
    assert "tenant_tokens" in said
    ev.queue.recorder.flush()
    assert ev.usage().bounds()["tokens"] == (used + 3 * EACH, used + 3 * EACH)
    tomorrow = datetime.fromtimestamp(START - START % DAY + DAY, UTC)
    assert ev.usage().waits_until == tomorrow  # jobs wait too
    clock.move(tomorrow.timestamp() - clock.now)
    assert ways(ev, 1) == ["hybrid"]


def test_a_quota_of_money_counts_too_and_a_raised_one_holds_at_once(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, price_per_million=1e6), server)
    ev.set_limits(Limits(money=ev.usage().money + 2 * EACH))
    assert ways(ev, 3) == ["hybrid", "hybrid", "text"]
    ev.set_limits(Limits(money=ev.usage().money + 10 * EACH))
    assert ways(ev, 1) == ["hybrid"]


def test_what_another_process_spent_is_seen_within_seconds(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    one = with_a_record(opened(clock=clock), server)
    two = opened(clock=clock)
    one.set_limits(Limits(tokens=one.usage().tokens + 3 * EACH))
    assert ways(two, 1) == ["hybrid"]
    assert ways(one, 2) == ["hybrid", "hybrid"]
    for ev in (one, two):
        ev.queue.recorder.flush()
    clock.move(FLUSH_SECONDS)
    assert ways(one, 1) + ways(two, 1) == ["text", "text"]


def test_a_model_that_costs_nothing_has_no_quota(opened: Open, clock: Clock) -> None:
    ev = opened("hashing", store="memory:", clock=clock)
    ev.add(KIND, "a record", id="1")
    ev.process_all()
    ev.store.shared.add_spend([Spend("2027-01-15", "default", KIND, "m", 1, 10, 1.0)])
    ev.set_limits(Limits(tokens=1, money=0.5))
    assert ways(ev, 2) == ["hybrid", "hybrid"]
    assert of_queries(ev) == []


def test_an_embedder_of_your_own_tells_its_cost_or_it_is_estimated(world: World) -> None:
    embedder: Any = world.embedder
    world.ev.add(KIND, "a record", id="1")
    work(world.ev)
    embedder.ask = lambda texts: Answer(embedder.embed(texts), tokens=70)
    world.ev.search(QUERY)
    assert [s.tokens for s in of_queries(world.ev)] == [70]
    embedder.embed_query = lambda text: embedder.embed([text])[0]
    world.ev.search("x" * 30)
    assert [s.tokens for s in of_queries(world.ev)] == [70 + 11]
    embedder.ask_query = lambda text: Answer(embedder.embed([text]), tokens=100)
    world.ev.search(QUERY)
    assert [s.tokens for s in of_queries(world.ev)] == [70 + 11 + 100]


# ---- limits of all tenants


def test_a_daily_cap_that_records_reach_leaves_queries_their_own(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, daily_tokens=2 * EACH), server)
    ev.add(KIND, "a longer record " * EACH, id="more")
    ev.process_all()
    assert ev.queue.stats().capped
    assert ways(ev, 4) == ["hybrid", "hybrid", "text", "text"]
    assert ways(ev.of("other"), 1) == ["text"]
    clock.move(DAY)
    assert ways(ev, 1) == ["hybrid"]


def test_queries_pause_records_when_both_reach_a_daily_cap(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, daily_tokens=100), server)
    ways(ev, 100 // EACH + 1)
    ev.queue.recorder.flush()
    assert "daily_tokens" in str(ev.queue.stats().capped)


def test_queries_leave_records_a_part_of_each_minute(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, requests_per_minute=8), server)
    clock.move(60)
    assert ways(ev, 8) == ["hybrid"] * 6 + ["text"] * 2
    clock.move(60.5)
    assert ways(ev, 1) == ["hybrid"]


def test_workers_know_what_queries_took_of_a_minute(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock, requests_per_minute=3), server)
    clock.move(60)
    ways(ev, 2)
    workers = Budget(ev.store, ev.provider.name, 3, 0)
    until(lambda: sum(entry[1] for entry in workers._read()[2]) == 2)
    assert workers.take(1) == 0
    assert workers.take(1) > 0


def shares(requests: int = 0, tokens: int = 0) -> Minute:
    return Minute(requests, tokens, lambda *_: None)


def test_one_tenant_takes_at_most_half_of_a_minute_while_others_search() -> None:
    minute = shares(requests=100)
    assert minute.take(0.0, "other", 1) == 0
    taken = [minute.take(float(n), "greedy", 1) == 0 for n in range(59)]
    assert sum(taken) == 50
    assert minute.take(59.0, "other", 1) == 0
    wait = minute.take(59.0, "greedy", 1)
    assert wait == pytest.approx(1.0)
    assert minute.take(59.0 + 61.0, "greedy", 1) == 0


def test_a_query_of_more_than_a_minutes_tokens_is_sent_when_nothing_else_was() -> None:
    minute = shares(tokens=10)
    assert minute.take(0.0, "a", 1000) == 0
    assert minute.take(1.0, "a", 1) > 0
    assert minute.take(60.0, "a", 1000) == 0


def test_no_minute_forgets_queries_after_the_clock_was_set_back() -> None:
    minute = shares(requests=4)
    assert [minute.take(1000.0, "a", 1) > 0 for _ in range(4)] == [False, False, False, True]
    assert minute.take(10.0, "a", 1) == 0  # what is in the future says nothing
    assert len(minute._taken) == len(minute._by_tenant) == 1


def test_a_refused_query_does_not_shut_the_gate_of_the_provider(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock), server)
    ev.set_limits(Limits(tokens=1))
    with pytest.raises(QueryRefused, match="tenant_tokens") as refused:
        ev.provider.embed_query(QUERY, "default")
    assert refused.value.retry_after == pytest.approx(DAY - START % DAY)
    assert ev.provider.gate() is None


def test_threads_that_search_at_once_lose_no_costs(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    ev = with_a_record(opened(clock=clock), server)

    def search() -> None:
        for _ in range(20):
            ev.search(QUERY)
            clock.move(1)  # some of them save meanwhile

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(s.calls for s in of_queries(ev)) == 80
    assert sum(s.tokens for s in of_queries(ev)) == 80 * EACH
