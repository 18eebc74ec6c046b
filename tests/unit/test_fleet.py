"""A fleet: replaced when dead, larger when behind, smaller when idle. The workers are stand-ins."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evervec.errors import InvalidArgument, SettingsError, StoreError
from evervec.integrations.fleet.ray import orders
from evervec.integrations.fleet.supervisor import Fleet, Lag, Size


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Standin:
    def __init__(self, number: int) -> None:
        self.name = f"worker {number}"
        self.dead: str | None = None
        self.stopped = self.killed = self.drained = False

    def trouble(self) -> str | None:
        return self.dead

    def stop(self) -> None:
        self.stopped = True

    def kill(self) -> None:
        self.killed = True

    def ended(self) -> bool:
        return self.drained


class World:
    def __init__(self, least: int = 2, most: int = 4) -> None:
        self.clock = Clock()
        self.lag: Callable[[], Lag] = lambda: Lag(0, None)
        self.started: list[Standin] = []
        self.fleet = Fleet(self, self.found, Size(least, most), self.clock)

    def found(self) -> Lag:
        return self.lag()

    def start(self, number: int) -> Standin:
        self.started.append(Standin(number))
        return self.started[-1]

    def later(self, seconds: float) -> None:
        self.clock.now += seconds
        self.fleet.step()

    @property
    def count(self) -> int:
        return len(self.fleet.members)


def test_it_starts_with_the_least() -> None:
    world = World()
    world.later(0)
    assert world.count == 2


def test_a_dead_worker_is_replaced_at_once() -> None:
    world = World()
    world.later(0)
    world.started[0].dead = "killed"
    world.later(1)
    assert world.count == 2
    assert world.started[0].killed, "what is left of it is ended"
    assert world.started[0] not in world.fleet.members
    assert world.fleet.replaced == 1


def test_workers_that_die_as_they_start_are_replaced_ever_more_slowly() -> None:
    world = World(1, 1)
    world.later(0)
    gaps: list[float] = []
    for _ in range(8):
        world.started[-1].dead = "no model"
        many, began = len(world.started), world.clock.now
        while len(world.started) == many:
            world.later(0.5)
        gaps.append(world.clock.now - began)
    assert gaps[0] <= 0.5
    assert gaps[1] >= 1
    assert gaps[-1] >= 20
    assert max(gaps) <= 61
    world.later(100)  # one that works
    world.started[-1].dead = "killed"
    world.later(1)
    assert world.count == 1, "old deaths are forgotten"


def test_it_grows_by_one_each_time_that_work_waits_too_long() -> None:
    world = World()
    world.lag = lambda: Lag(1000, 31)
    counts = []
    for _ in range(8):
        world.later(15)
        counts.append(world.count)
    assert counts == [2, 3, 3, 4, 4, 4, 4, 4]


def test_a_short_backlog_does_not_grow_it() -> None:
    world = World()
    world.lag = lambda: Lag(1000, 5)
    for _ in range(20):
        world.later(15)
    assert world.count == 2


def test_it_shrinks_to_the_least_after_a_time_without_a_backlog() -> None:
    world = World()
    world.lag = lambda: Lag(1000, 100)
    for _ in range(5):
        world.later(31)
    assert world.count == 4
    world.lag = lambda: Lag(0, None)
    world.later(200)
    assert world.count == 4
    world.later(101)
    assert world.count == 3
    assert [s.stopped for s in world.started] == [False, False, False, True]
    for _ in range(5):
        world.later(301)
    assert world.count == 2
    assert not any(s.killed for s in world.started), "they drain"


def test_a_store_that_is_away_changes_nothing() -> None:
    world = World()

    def away() -> Lag:
        raise StoreError("away")

    world.lag = away
    for _ in range(5):
        world.later(400)
    assert world.count == 2


def test_stopping_drains_all_and_kills_those_that_hang() -> None:
    world = World()
    world.later(0)
    quick, hung = world.started
    quick.drained = True
    world.fleet.stop(30, lambda seconds: setattr(world.clock, "now", world.clock.now + seconds))
    assert quick.stopped
    assert hung.stopped
    assert (quick.killed, hung.killed) == (False, True)
    assert world.count == 0


@pytest.mark.parametrize(("least", "most"), [(0, 1), (3, 2), (-1, 5)])
def test_a_size_that_makes_no_sense_is_refused(least: int, most: int) -> None:
    with pytest.raises(InvalidArgument, match="a fleet needs at least one worker"):
        Size(least, most)


@pytest.mark.parametrize("store", ["memory:", ":memory:", "duckdb:///x.duckdb"])
def test_a_store_for_one_process_has_no_fleet(store: str) -> None:
    with pytest.raises(SettingsError, match="can be open in one process only"):
        orders(store, None, None, None, None)


def test_orders_mean_the_same_in_another_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERVEC_OPENAI_KEY", "sk-secret")
    monkeypatch.setenv("OTHER", "not sent")
    monkeypatch.setenv("EVERVEC_INDEX", "lancedb://vectors")
    made = orders("a.db", "qdrant-edge://points", "hashing", None, 2)
    assert made.store == orders("sqlite:///a.db", None, None, None, 2).store == f"{Path.cwd()}/a.db"
    assert made.index == f"qdrant-edge://{Path.cwd()}/points"
    assert made.environ["EVERVEC_INDEX"] == f"lancedb://{Path.cwd()}/vectors"
    for url in ("lancedb://s3://bucket/vectors", "qdrant://host:6333", "own"):
        assert orders("postgresql://host/a", url, None, None, 1).index == url
    assert made.environ["EVERVEC_OPENAI_KEY"] == "sk-secret"
    assert "OTHER" not in made.environ
    assert "sk-secret" not in repr(made)
