"""What a claim costs does not grow with the jobs that it does not take.

SQLite counts for us: the instructions of its virtual machine. The same holds for PostgreSQL, whose
pages are counted in `tests/postgres`.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.steps import statements_and_steps
from support.world import KIND, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(("sqlite", "sqlite"), tmp_path)
    yield made
    made.close()


def steps_of_a_claim(world: World) -> int:
    def claim() -> None:
        assert len(world.ev.queue.claim(10)) == 10

    return statements_and_steps(world, claim)[1]


def paused(world: World) -> None:
    world.ev.queue.enqueue_many(KIND, range(5_000))
    world.ev.queue.pause(own=True)


def a_backlog(world: World) -> None:
    world.ev.queue.enqueue_many(KIND, range(5_000))


def delayed_at_every_priority(world: World) -> None:
    records = (
        {"id": n, "text": "x", "priority": n % 2001 - 1000, "delay": 9e9} for n in range(4_002)
    )
    list(world.ev.add_many(KIND, records))


def due_at_every_priority(world: World) -> None:
    records = ({"id": n, "text": "x", "priority": n % 2001 - 1000} for n in range(4_002))
    list(world.ev.add_many(KIND, records))


def delayed_of_many_tenants(world: World) -> None:
    for n in range(300):
        world.tenant(f"late-{n}").queue.enqueue_many(KIND, range(3), delay=9e9)


@pytest.mark.parametrize(
    "crowd",
    [
        paused, a_backlog, delayed_at_every_priority, due_at_every_priority,
        delayed_of_many_tenants,
    ],
    ids=lambda crowd: crowd.__name__,
)  # fmt: skip
def test_a_claim_stays_flat_beside(world: World, crowd: Callable[[World], None]) -> None:
    other = world.tenant("other")
    other.queue.enqueue_many(KIND, range(30))
    usual = max(steps_of_a_claim(world) for _ in range(3))
    crowd(world)
    world.clock.move(60)
    other.queue.enqueue_many(KIND, range(100, 160))
    assert max(steps_of_a_claim(world) for _ in range(5)) < 2 * usual


def test_an_idle_look_stays_flat_beside_delayed_jobs(world: World) -> None:
    """Of a worker that has nothing to do: whether something is due, and when something will be."""
    delayed_at_every_priority(world)

    def look() -> None:
        assert world.ev.queue.claim(10) == []
        assert world.ev.store.leases.next_due() == pytest.approx(world.clock.now + 9e9)

    statements, steps = statements_and_steps(world, look)
    assert statements < 10
    assert steps < 10
