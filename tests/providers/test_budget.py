"""Requests and tokens a minute, kept by all workers of a store together."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest

from evervec import Evervec
from evervec.embedding.budget import Budget
from support.processes import until
from support.provider import ProviderServer
from support.world import KIND, START, Clock, World, add_all

Open = Callable[..., Evervec]


def most_in_a_minute(taken: Sequence[tuple[float, int]]) -> int:
    """The most that was taken in any sixty seconds."""
    return max(
        sum(amount for when, amount in taken if start <= when < start + 60) for start, _ in taken
    )


def take_all(
    budgets: Sequence[Budget], clock: Clock, sizes: Callable[[], int]
) -> list[tuple[float, int]]:
    """What several take that want as much as they can get, for three minutes."""
    wanted, taken = [sizes() for _ in budgets], []
    while clock() < START + 180:
        waits = [budget.take(want) for budget, want in zip(budgets, wanted, strict=True)]
        for n, wait in enumerate(waits):
            if not wait:
                taken.append((clock(), wanted[n]))
                wanted[n] = sizes()
        clock.move(max(0.01, min(waits)))
    return taken


@pytest.mark.parametrize("size", [30, 99, 100, 101, 250, 400, 500, 990, 1000])
def test_no_minute_sees_more_tokens_than_its_budget(memory: World, size: int) -> None:
    budgets = [Budget(memory.ev.store, "m", 0, 1000) for _ in range(2)]
    taken = take_all(budgets, memory.clock, lambda: size)
    assert most_in_a_minute(taken) <= 1000
    assert sum(amount for _, amount in taken) >= 0.75 * 3 * (1000 // size) * size


def test_nor_with_calls_of_all_sizes(memory: World) -> None:
    chance = random.Random(1)
    budgets = [Budget(memory.ev.store, "m", 0, 1000) for _ in range(3)]
    taken = take_all(budgets, memory.clock, lambda: chance.choice([1, 20, 300, 700]))
    assert most_in_a_minute(taken) <= 1000


def test_a_call_of_more_than_a_minutes_budget_goes_alone(memory: World) -> None:
    """It cannot be made smaller, so the next ones wait for longer."""
    taken = take_all([Budget(memory.ev.store, "m", 0, 1000)], memory.clock, lambda: 2000)
    assert 1 <= len(taken) <= 3


def test_openings_take_from_one_budget(file_world: World) -> None:
    stores = [file_world.ev.store, file_world.open().store]
    budgets = [Budget(store, "m", 50, 0) for store in stores]
    taken = take_all(budgets, file_world.clock, lambda: 10_000)
    calls = [(when, 1) for when, _ in taken]
    assert most_in_a_minute(calls) <= 50
    assert len(calls) >= 0.8 * 3 * 50


def test_models_have_budgets_of_their_own(memory: World) -> None:
    one, other = (Budget(memory.ev.store, name, 1, 0) for name in "ab")
    assert one.take(1) == 0
    assert one.take(1) > 0
    assert other.take(1) == 0


def test_none_is_set_by_default(memory: World) -> None:
    assert not Budget(memory.ev.store, "m", 0, 0).set


def test_a_clock_that_goes_back_does_not_fill_it(memory: World) -> None:
    budget = Budget(memory.ev.store, "m", 1, 0)
    assert budget.take(1) == 0
    memory.clock.move(-3600)
    assert budget.take(1) > 0


# ---- through workers


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server(clock: Clock) -> Iterator[ProviderServer]:
    with ProviderServer(clock=clock) as server:
        yield server


@pytest.fixture
def taken(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """When each call was let go, and its tokens. The clock does the waiting, and stands still
    while one of the threads takes something."""
    noted: list[tuple[float, int]] = []
    take, still = Budget.take, threading.Lock()

    def noting(self: Budget, tokens: int) -> float:
        with still:
            wait = take(self, tokens)
            if not wait:
                noted.append((clock(), tokens))
            return wait

    def sleep(seconds: float) -> None:
        with still:
            clock.move(max(0.01, seconds))

    monkeypatch.setattr(Budget, "take", noting)
    monkeypatch.setattr(
        "evervec.embedding.provider.time", SimpleNamespace(sleep=sleep, monotonic=clock)
    )
    return noted


@pytest.mark.parametrize(
    "limits", [{"requests_per_minute": 20}, {"tokens_per_minute": 100}], ids=["requests", "tokens"]
)
def test_two_openings_keep_one_budget(
    opened: Open,
    server: ProviderServer,
    clock: Clock,
    taken: list[tuple[float, int]],
    limits: dict[str, int],
) -> None:
    two = [opened(clock=clock, provider_batch=1, lease_seconds=1e6, **limits) for _ in range(2)]
    add_all(two[0], KIND, *(f"text number {n}" for n in range(60)))
    with two[0].worker(), two[1].worker():
        until(lambda: two[0].queue.stats().done == 60)
    assert len(taken) == server.seen().calls == 60
    assert most_in_a_minute([(when, 1) for when, _ in taken]) <= limits.get(
        "requests_per_minute", 60
    )
    assert most_in_a_minute(taken) <= limits.get("tokens_per_minute", 1000)


@pytest.mark.usefixtures("taken")
def test_calls_that_look_for_a_bad_text_are_in_the_budget_too(
    opened: Open, server: ProviderServer, clock: Clock
) -> None:
    settings = {"provider_batch": 16, "requests_per_minute": 20, "max_attempts": 1}
    ev = opened(clock=clock, lease_seconds=1e6, concurrency=1, **settings)
    server.behave(fail="poison")
    texts = [f"poison {n}" if n % 16 == 5 else f"text {n}" for n in range(16 * 6)]
    add_all(ev, KIND, *texts)
    assert ev.process_all().failed == 6
    calls = [(call.start, 1) for call in server.calls()]
    assert most_in_a_minute(calls) <= 20 + 12  # those of the call under way; the next ones wait
    assert calls[-1][0] - calls[0][0] >= 60


def test_a_worker_that_ends_does_not_wait_for_the_next_minute(
    opened: Open, server: ProviderServer
) -> None:
    ev = opened(provider_batch=1, requests_per_minute=1)
    add_all(ev, KIND, "now", "a minute later")
    with ev.worker():
        until(lambda: server.seen().calls == 1)
        start = time.monotonic()
    assert time.monotonic() - start < 30  # and not 60
    later = ev.queue.jobs(status="pending")
    assert [job.attempts for job in later] == [0] * (2 - ev.queue.stats().done)
    assert server.seen().calls == 1
