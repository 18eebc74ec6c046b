"""`conn=`: what evervec writes is a part of the caller's own transaction."""

import contextlib
import sqlite3
from contextlib import closing

import pytest

from evervec import InvalidArgument, Kind, StoreError
from support.world import KIND, World, assert_in_step, work


def test_what_the_caller_commits_is_there(joined_world: World) -> None:
    ev = joined_world.ev
    with closing(joined_world.connect()) as conn:
        conn.execute("create table mine (id text)")
        conn.execute("insert into mine values ('1')")
        ticket = ev.add(KIND, "alpha", id="1", conn=conn)
        list(ev.add_many(KIND, [{"id": "2", "text": "beta"}], conn=conn))
        assert ev.get(KIND, "1") is None
        assert ev.queue.claim(9) == []
        conn.commit()
        assert conn.execute("select count(*) from mine").fetchone()[0] == 1
    work(ev)
    assert ev.wait(ticket, 0).record_id == "1"
    assert_in_step(ev, {"1": "alpha", "2": "beta"})


def test_what_the_caller_rolls_back_never_was(joined_world: World) -> None:
    ev = joined_world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "beta", id="1", conn=conn)
        ev.add(KIND, "gamma", id="2", conn=conn)
        ev.delete(KIND, "1", conn=conn)
        ev.queue.enqueue(KIND, "3", conn=conn)
        conn.rollback()
    assert [(r.id, r.text) for r in ev.records()] == [("1", "alpha")]
    assert ev.queue.stats().pending == 0
    assert [h.id for h in ev.search("alpha", mode="text")] == ["1"]
    assert_in_step(ev, {"1": "alpha"})


def test_identical_adds_of_which_the_first_is_rolled_back_leave_a_job(joined_world: World) -> None:
    ev = joined_world.ev
    with closing(joined_world.connect()) as conn:
        ev.add(KIND, "alpha", id="1", conn=conn)
        conn.rollback()
        assert ev.add(KIND, "alpha", id="1").is_new
    work(ev)
    assert_in_step(ev, {"1": "alpha"})


def test_deletes_and_enqueued_rows_join_too(joined_world: World) -> None:
    ev = joined_world.ev
    ev.register(Kind("row", load={"7": "row seven"}.get))
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(joined_world.connect()) as conn:
        assert ev.delete(KIND, "1", conn=conn).accepted
        assert ev.queue.enqueue("row", "7", conn=conn).is_new
        again, bad = ev.queue.enqueue_many("row", ["7", ""], conn=conn)
        assert again.error is None
        assert bad.error is not None
        assert ev.get(KIND, "1") is not None
        conn.commit()
    assert ev.get(KIND, "1") is None
    work(ev)
    assert_in_step(ev, {})
    assert_in_step(ev, {"7": "row seven"}, "row")


def test_an_error_inside_leaves_the_callers_own_writes_alone(joined_world: World) -> None:
    ev = joined_world.ev
    with closing(joined_world.connect()) as conn:
        conn.execute("create table mine (id text)")
        conn.execute("insert into mine values ('1')")
        with pytest.raises(ValueError, match="weight"):
            ev.add(KIND, "alpha", id="1", weight=7, conn=conn)
        draft = ev._draft(KIND, {"id": "2", "text": "x"})
        draft.weight = None  # type: ignore[assignment]
        with pytest.raises(StoreError):
            ev.store.save("default", KIND, [draft], conn)
        ev.add(KIND, "good", id="3", conn=conn)
        conn.commit()
        assert conn.execute("select id from mine").fetchall() == [("1",)]
    assert [r.id for r in ev.records()] == ["3"]


def test_waiting_inside_a_transaction_is_refused(joined_world: World) -> None:
    joined_world.ev.add(KIND, "alpha", id="1")
    with closing(joined_world.connect()) as conn:
        with pytest.raises(InvalidArgument, match="wait"):
            joined_world.ev.add(KIND, "alpha", id="2", wait=0, conn=conn)
        with pytest.raises(InvalidArgument, match="wait"):
            joined_world.ev.delete(KIND, "1", wait=0, conn=conn)


def test_something_that_is_no_connection_is_refused(joined_world: World) -> None:
    with pytest.raises(InvalidArgument, match="conn="):
        joined_world.ev.add(KIND, "alpha", id="1", conn="a string")


def test_a_connection_to_another_file_is_refused(joined_world: World) -> None:
    with closing(joined_world.connect_elsewhere()) as conn, pytest.raises(StoreError):
        joined_world.ev.add(KIND, "alpha", id="1", conn=conn)
    assert joined_world.ev.records() == []


class TestSqlite3Connections:
    """What callers set on a `sqlite3.Connection` does not disturb evervec, and stays set."""

    def test_row_and_text_factories(self, file_world: World) -> None:
        with closing(file_world.connect()) as conn:
            conn.row_factory, conn.text_factory = sqlite3.Row, bytes
            file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            file_world.ev.add(KIND, "beta", id="1", conn=conn)
            assert (conn.row_factory, conn.text_factory) == (sqlite3.Row, bytes)
            conn.commit()
        work(file_world.ev)
        assert_in_step(file_world.ev, {"1": "beta"})

    def test_autocommit_mode_commits_each_call(self, file_world: World) -> None:
        with closing(file_world.connect()) as conn:
            conn.isolation_level = None
            file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            assert not conn.in_transaction
        assert file_world.ev.get(KIND, "1") is not None

    def test_autocommit_mode_with_an_explicit_transaction(self, file_world: World) -> None:
        with closing(file_world.connect()) as conn:
            conn.isolation_level = None
            conn.execute("begin")
            file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            assert conn.in_transaction
            conn.execute("rollback")
        assert file_world.ev.get(KIND, "1") is None

    def test_the_connection_as_context_manager(self, file_world: World) -> None:
        with closing(file_world.connect()) as conn:
            with conn:
                file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            with contextlib.suppress(ZeroDivisionError), conn:
                file_world.ev.add(KIND, "beta", id="2", conn=conn)
                raise ZeroDivisionError
        assert [r.id for r in file_world.ev.records()] == ["1"]

    def test_a_savepoint_of_the_callers_can_be_rolled_back(self, file_world: World) -> None:
        with closing(file_world.connect()) as conn:
            conn.execute("begin")
            file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            conn.execute("savepoint mine")
            file_world.ev.add(KIND, "beta", id="2", conn=conn)
            conn.execute("rollback to mine")
            conn.commit()
        assert [r.id for r in file_world.ev.records()] == ["1"]
