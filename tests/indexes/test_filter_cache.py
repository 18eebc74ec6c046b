"""The results of filters that are kept: whatever happened since, they are those of the metadata."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from evervec import Evervec
from evervec.indexes.base import Query
from evervec.indexes.filter_cache import FittingCache
from evervec.model.filters import matches, parse_filter
from evervec.stores.sqlite import postings, records
from support.engines import APART_PAIRS, OWN_PAIRS
from support.seeds import some_of
from support.world import KIND, World

PAIRS = [pair for pair in OWN_PAIRS if pair not in APART_PAIRS and pair[0] != "postgres"]
FILTERS: tuple[dict[str, object], ...] = (
    {"group": 1},
    {"group": True},
    {"tags": "b"},
    {"group": {"gte": 2}},
    {"none": None},
)
Truth = dict[str, dict[str, object]]


@pytest.fixture(params=PAIRS, ids=["-".join(pair) for pair in PAIRS])
def world(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[World]:
    """A store in which words are written in parts of four records."""
    monkeypatch.setattr(records, "MANY", 0)
    monkeypatch.setattr(postings, "ROWS", 4)
    world = World(request.param, tmp_path)
    yield world
    world.close()


def fitting(ev: Evervec) -> FittingCache:
    found: FittingCache = ev.index._fitting_cache()  # type: ignore[attr-defined]
    return found


def query(ev: Evervec, filter: dict[str, object]) -> Query:
    (version,) = [c.version for c in ev.store.versions.collections() if c.kind == KIND]
    return Query(version, ev.tenant, np.zeros(4, np.float32), 3, parse_filter(filter))


def check(ev: Evervec, truth: Truth) -> None:
    for filter in FILTERS:
        wanted = {id for id, metadata in truth.items() if matches(metadata, parse_filter(filter))}
        asked = query(ev, filter)
        known = fitting(ev).known(asked)
        for found in (known, fitting(ev).all(asked)):
            if found is not None:
                numbers = found.tolist()
                assert numbers == sorted(set(numbers))
                read = ev.store.records.found(numbers)
                assert {read[number].id for number in numbers} == wanted, filter


@pytest.mark.parametrize("seed", some_of(range(4), first=2))
def test_kept_results_are_right_whatever_happened(world: World, seed: int) -> None:
    draw = random.Random(seed)
    truth: Truth = {}
    processes = [world.ev] if world.store_name == "duckdb" else [world.ev, world.open()]
    if world.store_name == "memory":
        processes = [world.ev]
    world.ev.add(KIND, "first", id="first")
    truth["first"] = {}
    for _ in range(40):
        ev = draw.choice(processes)
        act = draw.choice(("add", "add", "delete", "maintain", "search", "search"))
        if act == "add":
            for id in map(str, draw.sample(range(30), 3)):
                group = draw.choice([0, 1, 2, 3.0, True, None])
                truth[id] = {"group": group, "tags": draw.sample("abc", 2)}
                ev.add(KIND, f"text {draw.random()}", id=id, metadata=truth[id])
        elif act == "delete" and len(truth) > 1:
            id = draw.choice(sorted(truth.keys() - {"first"}))
            ev.delete(KIND, id)
            del truth[id]
        elif act == "maintain":
            ev.store.maintain()
        elif act == "search":
            check(ev, truth)
    for ev in processes:
        check(ev, truth)


def test_results_are_brought_up_to_date_instead_of_read_again(tmp_path: Path) -> None:
    world = World(("sqlite", "sqlite"), tmp_path)
    ev = world.ev
    ev.add(KIND, "text", id="1", metadata={"group": 1})
    asked = query(ev, {"group": 1})
    assert fitting(ev).known(asked) is None
    assert len(fitting(ev).all(asked)) == 1
    ev.add(KIND, "text", id="2", metadata={"group": 1})
    world.open().delete(KIND, "1")
    found = fitting(ev).known(asked)
    assert found is not None
    (left,) = found.tolist()
    assert ev.store.records.found([left])[left].id == "2"
    world.close()


def test_results_take_a_bounded_amount_of_memory(tmp_path: Path) -> None:
    world = World(("memory", "sqlite"), tmp_path)
    ev = world.ev
    for n in range(20):
        ev.add(KIND, "text", id=str(n), metadata={"group": n % 2})
    cache = FittingCache(ev.store.engine, ev.index.sql, 100, lists_changes=True)  # type: ignore[attr-defined]
    first, second = query(ev, {"group": 0}), query(ev, {"group": 1})
    assert len(cache.all(first)) == len(cache.all(second)) == 10
    assert cache.known(first) is None
    assert cache.known(second) is not None
    assert cache.of(first).is_repeated is False
    assert cache.of(first).is_repeated is True
    world.close()
