"""A thread that is in a transaction asks for no second connection of the pool: if all did, each
would wait for the others."""

from typing import Any

import pytest

from evervec import DeadlineExceeded, Evervec, Status, deadline
from evervec.stores.postgres import PostgresStore
from support.world import KIND, World, add_all, assert_in_step


@pytest.fixture
def ev(world: World) -> Evervec:
    """Over a pool of one connection, which nobody waits for in vain for long."""
    ev = world.open(connect_seconds=5.0, hnsw_rows=1)
    assert isinstance(ev.store, PostgresStore)
    ev.store.db.pool.resize(0, 1)
    return ev


def test_a_new_kind_and_its_first_vectors(ev: Evervec) -> None:
    """Both are made beside the transaction that needs them."""
    add_all(ev, KIND, "alpha", "beta")
    ev.queue.enqueue("another kind", "1")
    ev.delete(KIND, "1")
    assert ev.process_all().succeeded >= 2
    assert_in_step(ev, {"0": "alpha"})
    assert [hit.id for hit in ev.search("alpha", mode="semantic")] == ["0"]


def test_stats_of_a_store_whose_clock_was_not_looked_at_yet(ev: Evervec) -> None:
    assert ev.queue.stats().pending == 0


def test_a_worker_with_those_who_wait_for_it(ev: Evervec) -> None:
    with ev.worker():
        tickets = add_all(ev, KIND, *(f"text {n}" for n in range(20)))
        assert {ev.wait(ticket, 30).status for ticket in tickets} == {Status.DONE}


def test_a_query_past_its_deadline_ends_in_the_server_too(world: World) -> None:
    """A connection that is only cut would leave its query running."""
    store: Any = world.ev.store

    def sleep() -> None:
        with store.db.reading() as conn:
            conn.execute("select pg_sleep(3600)")

    def running() -> int:
        with store.db.reading() as conn:
            count: int = conn.execute(
                "select count(*) from pg_stat_activity where state = 'active' "
                "and query = 'select pg_sleep(3600)' and datname = current_database()"
            ).fetchone()[0]
            return count

    with deadline(0.1), pytest.raises(DeadlineExceeded):
        sleep()
    assert running() == 0
