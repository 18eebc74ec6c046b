"""What a claim costs in PostgreSQL does not grow with the jobs that it does not take."""

from collections.abc import Callable

import psycopg
import pytest

from support.world import KIND, World

CLAIM = (
    b"explain (analyze, buffers, format json) select * from evervec.next_jobs(10, $1, turn => $2)"
)


def pages_of_a_claim(world: World, url: str) -> int:
    """The pages that the next claim looks at; nothing is claimed. It is the least of several: the
    first one also reads what the function says, and one after a run of autovacuum the catalogue."""
    asked = (world.ev.store.now(), world.ev.store.leases.turns.after)  # type: ignore[attr-defined]
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as conn:
        plans = [conn.execute(CLAIM, asked).fetchone() for _ in range(5)]
        conn.rollback()
    tops = [plan[0][0]["Plan"] for plan in plans if plan is not None]
    return min(int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"]) for top in tops)


def delayed_at_every_priority(world: World) -> None:
    records = (
        {"id": n, "text": "x", "priority": n % 2001 - 1000, "delay": 9e9} for n in range(4_002)
    )
    list(world.ev.add_many(KIND, records))


def a_backlog_at_every_priority(world: World) -> None:
    records = ({"id": n, "text": "x", "priority": n % 2001 - 1000} for n in range(4_002))
    list(world.ev.add_many(KIND, records))


def delayed_of_many_tenants(world: World) -> None:
    for n in range(200):
        world.tenant(f"late-{n}").queue.enqueue_many(KIND, range(3), delay=9e9)


@pytest.mark.parametrize(
    "crowd",
    [delayed_at_every_priority, a_backlog_at_every_priority, delayed_of_many_tenants],
    ids=lambda crowd: crowd.__name__,
)
def test_a_claim_stays_flat_beside(world: World, url: str, crowd: Callable[[World], None]) -> None:
    other = world.tenant("other")
    other.queue.enqueue_many(KIND, range(60))
    usual = pages_of_a_claim(world, url)
    crowd(world)
    assert pages_of_a_claim(world, url) < 2 * usual + 20
