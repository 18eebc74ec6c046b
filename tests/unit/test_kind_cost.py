"""What a search and a claim cost does not grow with the kinds of other tenants."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evervec import Limits
from evervec.indexes.base import Query
from evervec.indexes.matrix import Matrix
from support.steps import statements_and_steps
from support.world import KIND, World, work

MANY = 300


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(("sqlite", "sqlite"), tmp_path)
    yield made
    made.close()


def crowd(world: World) -> None:
    """Another tenant with many kinds, all in the index."""
    other = world.tenant("other")
    other.set_limits(Limits(kinds=0))
    for n in range(MANY):
        other.add(f"kind {n}", f"alpha {n}", id="1")
    work(world.ev)


def test_a_search_reads_nothing_of_other_tenants_kinds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    searched = []
    index_search = world.ev.index.search

    def noting(query: Query) -> Any:
        searched.append(query.version)
        return index_search(query)

    monkeypatch.setattr(world.ev.index, "search", noting)

    def search() -> None:
        world.tenant("other").add("kind 0", "beta", id="1")  # so that nothing remembered is true
        assert [hit.id for hit in world.ev.search("alpha")] == ["1"]

    search()
    before = statements_and_steps(world, search)
    crowd(world)
    search()
    searched.clear()
    after = statements_and_steps(world, search)
    assert len(searched) == 1
    assert after[0] <= before[0] + 2
    assert after[1] < 2 * before[1] + 10


def test_a_claim_reads_nothing_of_kinds_that_it_takes_no_jobs_of(world: World) -> None:
    def claim() -> None:
        world.ev.add(KIND, "alpha", id="1")
        world.ev.add(KIND, "beta", id="1")
        assert len(world.ev.pipeline.claim(10)) == 1
        world.clock.move(100)
        world.ev.queue.recover_stuck()
        world.ev.queue.cancel(world.ev.queue.jobs(status="pending")[0].job_id)

    claim()
    before = statements_and_steps(world, claim)
    crowd(world)
    claim()
    after = statements_and_steps(world, claim)
    assert after[0] <= before[0] + 2
    assert after[1] < 2 * before[1] + 10


def test_vectors_held_for_searches_are_not_counted_anew_each_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For each that a search brings up to date, its own."""
    other = world.tenant("other")
    for n in range(40):
        other.add(f"kind {n}", f"alpha {n}", id="1")
    work(world.ev)
    looks = []
    size = Matrix.nbytes.fget  # type: ignore[attr-defined]

    def counted(matrix: Matrix) -> int:
        looks.append(1)
        return int(size(matrix))

    monkeypatch.setattr(Matrix, "nbytes", property(counted))
    other.search("alpha")
    assert len(looks) <= 40
