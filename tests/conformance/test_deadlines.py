"""A deadline ends what an engine does, and a write that it ends has written nothing."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evervec import DeadlineExceeded, Evervec, deadline
from evervec.errors import Cancelled
from evervec.model.deadlines import Deadline, bounded
from support.world import KIND, PATIENCE, World

LONG = (
    "with recursive n(i) as (select 1 union all select i + 1 from n where i < 5000000) "
    "select count(*) from n"
)
"""takes seconds, and then ends by itself, so that a test fails where nothing ends it"""


def table(world: World, name: str) -> str:
    return f"evervec.{name}" if world.store_name == "postgres" else f"evervec_{name}"


def long(world: World) -> str:
    return "select pg_sleep(10)" if world.store_name == "postgres" else LONG


def read(ev: Evervec, query: str) -> None:
    store: Any = ev.store
    with store.db.reading() as conn:
        conn.execute(query).fetchall()


def write(ev: Evervec, query: str, before_commit: Callable[[Any], object]) -> None:
    store: Any = ev.store
    with store.db.writing(durable=True) as conn:
        conn.execute(query)
        before_commit(conn)


def test_a_read_ends_with_its_deadline_and_the_store_goes_on(world: World) -> None:
    for _ in range(3):
        with deadline(0.05), pytest.raises(DeadlineExceeded, match=r"deadline of 0\.05 s"):
            read(world.ev, long(world))
    world.ev.add(KIND, "text", id="1")
    with deadline(PATIENCE):
        assert world.ev.get(KIND, "1") is not None


def test_a_read_ends_when_nobody_waits_for_it_any_more(world: World) -> None:
    ends = Deadline(PATIENCE)
    timer = threading.Timer(0.05, ends.cancel, ["the client is gone"])
    timer.start()
    with bounded(ends), pytest.raises(Cancelled, match="the client is gone"):
        read(world.ev, long(world))
    timer.join()


def test_a_write_that_is_ended_has_written_nothing(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    delete = f"delete from {table(world, 'jobs')}"
    with deadline(0.2), pytest.raises(DeadlineExceeded):
        write(world.ev, delete, lambda conn: conn.execute(long(world)).fetchall())
    assert world.ev.queue.stats().pending == 1


def test_a_call_past_its_deadline_does_nothing(world: World) -> None:
    world.ev.add(KIND, "before", id="1")
    with deadline(0):
        for call in (
            lambda: world.ev.add(KIND, "after", id="1"),
            lambda: world.ev.delete(KIND, "1"),
            lambda: world.ev.search("before"),
            lambda: list(world.ev.records()),
        ):
            with pytest.raises(DeadlineExceeded):
                call()
    found = world.ev.get(KIND, "1")
    assert found is not None
    assert found.text == "before"


def test_waiting_for_another_writer_ends_with_the_deadline(world: World) -> None:
    held, release = threading.Event(), threading.Event()
    other = world.ev if world.store_name == "memory" else world.open()
    update = f"update {table(world, 'meta')} set value = value"

    def hold(_: object) -> None:
        held.set()
        release.wait(PATIENCE)

    holder = threading.Thread(target=write, args=(other, update, hold))
    holder.start()
    try:
        assert held.wait(PATIENCE)
        with deadline(0.1), pytest.raises(DeadlineExceeded):
            write(world.ev, update, lambda _: None)
    finally:
        release.set()
        holder.join()
    world.ev.add(KIND, "text", id="1")
    assert world.ev.get(KIND, "1") is not None
