"""What workers count is summed in memory, and reaches the store whatever happens in between."""

from collections.abc import Mapping
from typing import Any

import pytest

from evervec.errors import StoreError
from evervec.model.history import BOUNDS, Counts, HistoryPoint, percentile, sum_points
from evervec.queue.recorder import FLUSH_SECONDS, Recorder
from evervec.stores.base.history import BucketKey
from support.world import KIND, World, add_all, work


def done(world: World) -> int:
    found = sum_points(world.ev.history())
    assert found is not None
    return found.done


def test_counts_are_written_after_some_seconds_and_not_before(memory: World) -> None:
    recorder = memory.ev.queue.recorder
    add_all(memory.ev, KIND, "a")
    work(memory.ev)
    memory.clock.move(FLUSH_SECONDS / 2)
    recorder.flush_if_due()
    assert done(memory) == 0
    memory.clock.move(FLUSH_SECONDS / 2)
    recorder.flush_if_due()
    assert done(memory) == 1
    recorder.flush()
    assert done(memory) == 1


def test_a_clock_that_is_set_back_does_not_hold_counts_for_long(memory: World) -> None:
    add_all(memory.ev, KIND, "a")
    work(memory.ev)
    memory.clock.move(-1000)
    memory.ev.queue.recorder.flush_if_due()
    memory.clock.move(1000)
    assert done(memory) == 1


def test_an_unavailable_store_loses_no_counts(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder, history = memory.ev.queue.recorder, memory.ev.store.history
    tries: list[Mapping[BucketKey, Counts]] = []

    def refuse(counted: Mapping[BucketKey, Counts], lane: int = 0) -> None:
        tries.append(counted)
        raise StoreError("away")

    add_all(memory.ev, KIND, "a", "b")
    work(memory.ev)
    with monkeypatch.context() as away:
        away.setattr(history, "add", refuse)
        recorder.flush()
        add_all(memory.ev, KIND, "c")
        work(memory.ev)
        recorder.flush_if_due()  # not again at once
        assert len(tries) == 1
        memory.clock.move(2 * FLUSH_SECONDS)
        recorder.flush_if_due()
        assert len(tries) == 2
    recorder.flush()
    assert done(memory) == 3


def test_more_kinds_than_fit_are_counted_together(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evervec.queue.recorder._MOST_KEYS", 2)
    for n in range(5):
        memory.ev.add(f"kind {n}", "text", id="1")
    work(memory.ev)
    memory.ev.queue.recorder.flush()
    assert done(memory) == 5
    assert sum(bool(_of_kind(memory, f"kind {n}").done) for n in range(5)) == 2


def _of_kind(world: World, kind: str) -> HistoryPoint:
    return world.ev.history(kind=kind)[-1]


def test_the_cost_of_calls_is_counted(memory: World) -> None:
    recorder = memory.ev.queue.recorder
    recorder.spent(
        {("default", KIND): (1.0, 500.0), ("other", KIND): (1.0, 100.0)}, lambda t: t / 1e3
    )
    recorder.flush()
    mine, all_ = memory.ev.history()[-1], memory.ev.history(all_tenants=True)[-1]
    assert (mine.tokens, mine.money) == (500, 0.5)
    assert (all_.tokens, round(all_.money, 6)) == (600, 0.6)


def test_processes_of_a_server_use_different_lanes(memory: World) -> None:
    class Remote:
        is_local = False
        history: Any = None

    lanes = {Recorder(Remote(), f"host:{n}")._lane for n in range(100)}  # type: ignore[arg-type]
    assert lanes == set(range(8))
    assert Recorder(memory.ev.store, "host:7")._lane == 0


def test_percentiles_are_between_the_bounds_of_their_bucket() -> None:
    counts = [0] * (len(BOUNDS) + 1)
    assert percentile(counts, 0.5) is None
    counts[4] = 100
    for share in (0.0, 0.01, 0.5, 0.99, 1.0):
        found = percentile(counts, share)
        assert found is not None
        assert BOUNDS[3] <= found <= BOUNDS[4]
    counts[-1] = 100
    assert percentile(counts, 0.99) == BOUNDS[-1]
    assert percentile(counts, 0.5) == BOUNDS[4]
    assert percentile([1, *counts[1:]], 0.0) == 0.0
    assert sum_points([]) is None
