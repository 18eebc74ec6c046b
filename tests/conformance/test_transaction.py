"""`conn=`: what evervec writes is a part of the caller's own transaction."""

import contextlib
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

import evervec
from evervec import Evervec, InvalidArgument, Kind, Status, StoreError, WaitTimeout
from support.world import KIND, World, assert_in_step, job_of, work


def _file_of(world: World) -> Path:
    return Path(world.ev.store.url.removeprefix("sqlite:///"))


def fail_inside(ev: Evervec, conn: Any) -> None:
    """A call that the engine itself refuses."""
    draft = ev.draft(KIND, "x", {"id": "2"})
    draft.weight = None  # type: ignore[assignment]
    ev.store.changes.save("default", KIND, [draft], conn)


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


def test_a_ticket_is_not_settled_before_its_transaction_commits(joined_world: World) -> None:
    ev = joined_world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(joined_world.connect()) as conn:
        tickets = [
            ev.add(KIND, "beta", id="1", conn=conn),
            ev.add(KIND, "gamma", id="2", conn=conn),
            ev.add(KIND, "delta", id="3", boxed=True, conn=conn),
            ev.delete(KIND, "2", conn=conn),
        ]
        asked = [(ev.tenant, ticket) for ticket in tickets]
        assert ev.store.jobs.settled(asked) == [None] * 4
        with pytest.raises(WaitTimeout, match="is not committed"):
            ev.wait(tickets[0], 0)
        conn.commit()
    with pytest.raises(WaitTimeout, match="saved and waiting"):
        ev.wait(tickets[0], 0)
    work(ev)
    assert ev.store.jobs.settled(asked) == [Status.DONE] * 4
    assert ev.wait(tickets[0], 0).record_id == "1"


def test_a_ticket_of_what_was_rolled_back_never_settles(joined_world: World) -> None:
    """Its numbers may be given to other records since, whose jobs are done."""
    ev = joined_world.ev
    ev.add(KIND, "alpha", id="1")
    work(ev)
    with closing(joined_world.connect()) as conn:
        tickets = [ev.add(KIND, "beta", id=id, conn=conn) for id in ("1", "2")]
        conn.rollback()
    ev.add(KIND, "another", id="3")
    ev.add(KIND, "one more", id="4")
    job = job_of(ev, "1")
    ev.store.changes.reopen(
        job.version, [job.record], forget=False
    )  # a later pass over the old text
    work(ev)
    assert ev.store.jobs.settled([(ev.tenant, ticket) for ticket in tickets]) == [None, None]
    with pytest.raises(WaitTimeout, match="rolled back"):
        ev.wait(tickets[0], 0)
    ev.add(KIND, "gamma", id="1")
    work(ev)
    assert ev.store.jobs.settled([(ev.tenant, tickets[0])]) == [Status.DONE]  # a later change


@pytest.mark.parametrize("there", [False, True])
def test_a_box_that_is_asked_for_again_settles_nothing_newer(
    joined_world: World, there: bool
) -> None:
    """Its job has a later number then, but what comes out of it is as old as its add."""
    ev = joined_world.ev
    if there:
        ev.add(KIND, "alpha", id="1")
        work(ev)
    boxed = ev.add(KIND, "beta", id="1", boxed=True)
    with closing(joined_world.connect()) as conn:
        undone = ev.add(KIND, "gamma", id="1", conn=conn)
        conn.rollback()
    ev.queue.enqueue(KIND, "1")
    asked = [(ev.tenant, ticket) for ticket in (boxed, undone)]
    assert ev.store.jobs.settled(asked) == [None, None]
    assert not ev.store.jobs.is_saved(*asked[1])
    work(ev)
    assert ev.store.jobs.settled(asked) == [Status.DONE, None]
    assert ev.get(KIND, "1").seq == boxed.seq  # type: ignore[union-attr]
    assert_in_step(ev, {"1": "beta"})
    ev.add(KIND, "delta", id="1")
    work(ev)
    assert ev.store.jobs.settled(asked) == [Status.DONE, Status.DONE]  # a later change


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


def test_an_error_inside_leaves_the_callers_own_writes_alone(savepoint_world: World) -> None:
    ev = savepoint_world.ev
    with closing(savepoint_world.connect()) as conn:
        conn.execute("create table mine (id text)")
        conn.execute("insert into mine values ('1')")
        with pytest.raises(ValueError, match="weight"):
            ev.add(KIND, "alpha", id="1", weight=7, conn=conn)
        with pytest.raises(StoreError):
            fail_inside(ev, conn)
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

    def test_a_connection_to_another_store_is_refused(
        self, file_world: World, tmp_path: Path
    ) -> None:
        other, attached = tmp_path / "other.db", tmp_path / "attached.db"
        with evervec.open(other, embedder="hashing") as theirs:
            for file in (other, attached):
                with closing(sqlite3.connect(file)) as conn:
                    if file is attached:  # a commit to two files is not atomic
                        conn.execute("attach database ? as mine", (str(_file_of(file_world)),))
                    with pytest.raises(StoreError, match=f"{file.name}, not to .*nothing was"):
                        file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            assert theirs.records() == file_world.ev.records() == []

    def test_a_link_to_the_file_is_another_name_of_it(
        self, file_world: World, tmp_path: Path
    ) -> None:
        link = tmp_path / "link.db"
        link.symlink_to(_file_of(file_world))
        with closing(sqlite3.connect(link)) as conn:
            file_world.ev.add(KIND, "alpha", id="1", conn=conn)
            conn.commit()
        assert [record.id for record in file_world.ev.records()] == ["1"]

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


def test_only_a_store_that_nobody_else_can_open_gives_connections(savepoint_world: World) -> None:
    with pytest.raises(InvalidArgument, match="your own driver"):
        savepoint_world.ev.connection()


class TestDuckdbConnections:
    """What is a part of the caller's transaction on a connection of `ev.connection()`."""

    def test_a_call_that_fails_takes_the_whole_transaction_with_it(
        self, duckdb_world: World
    ) -> None:
        ev = duckdb_world.ev
        with closing(ev.connection()) as conn:
            conn.execute("create table mine (id text)")
            conn.begin()
            conn.execute("insert into mine values ('1')")
            ev.add(KIND, "alpha", id="1", conn=conn)
            with pytest.raises(StoreError):
                fail_inside(ev, conn)
            with pytest.raises(StoreError, match="roll it back"):
                ev.add(KIND, "beta", id="3", conn=conn)
            conn.rollback()
            ev.add(KIND, "gamma", id="4", conn=conn)
            conn.commit()
            assert conn.execute("select * from mine").fetchall() == []
        assert [r.id for r in ev.records()] == ["4"]

    def test_a_call_that_breaks_off_between_two_statements_is_never_committed(
        self, duckdb_world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ev = duckdb_world.ev
        writer = ev.store.changes._writer  # type: ignore[attr-defined]
        monkeypatch.setattr(writer, "put_jobs", interrupt)
        with closing(ev.connection()) as conn:
            with pytest.raises(KeyboardInterrupt):
                ev.add(KIND, "alpha", id="1", conn=conn)
            conn.commit()
        assert ev.records() == []

    def test_what_was_refused_before_it_reached_the_engine_ends_nothing(
        self, duckdb_world: World
    ) -> None:
        ev = duckdb_world.ev
        with closing(ev.connection()) as conn:
            ev.add(KIND, "alpha", id="1", conn=conn)
            with pytest.raises(ValueError, match="weight"):
                ev.add(KIND, "beta", id="2", weight=7, conn=conn)
            conn.commit()
        assert [r.id for r in ev.records()] == ["1"]

    def test_other_writers_wait_until_it_ends(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        with closing(ev.connection()) as conn:
            conn.begin()
            ev.add(KIND, "alpha", id="1", conn=conn)
            other = threading.Thread(target=ev.add, args=(KIND, "beta"), kwargs={"id": "1"})
            other.start()
            ev.add(KIND, "gamma", id="2", conn=conn)  # who waits is in nobody's way
            assert other.is_alive()
            conn.commit()
            other.join(30)
        assert {r.id: r.text for r in ev.records()} == {"1": "beta", "2": "gamma"}
        work(ev)
        assert_in_step(ev, {"1": "beta", "2": "gamma"})

    def test_one_that_never_ends_is_told_to_those_who_wait(self, duckdb_world: World) -> None:
        ev = duckdb_world.open(busy_seconds=0.05)
        with closing(ev.connection()) as conn:
            ev.add(KIND, "alpha", id="1", conn=conn)
            with pytest.raises(StoreError, match=r"ev\.connection\(\) has been open"):
                ev.add(KIND, "beta", id="2")
            conn.rollback()
            ev.add(KIND, "beta", id="2")
        assert [r.id for r in ev.records()] == ["2"]

    def test_work_that_is_done_since_it_began_is_in_nobodys_way(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        with closing(ev.connection()) as conn:
            conn.begin()
            assert conn.execute("select count(*) from evervec_records").fetchone() == (0,)
            ev.add(KIND, "alpha", id="1")
            work(ev)
            ev.add(KIND, "beta", id="2", conn=conn)
            conn.commit()
        work(ev)
        assert_in_step(ev, {"1": "alpha", "2": "beta"})

    def test_a_record_that_changed_since_it_began_is_refused(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        ev.add(KIND, "alpha", id="1")
        with closing(ev.connection()) as conn:
            conn.begin()
            assert conn.execute("select count(*) from evervec_records").fetchone() == (1,)
            ev.add(KIND, "beta", id="1")
            with pytest.raises(StoreError, match="retry it"):
                ev.add(KIND, "gamma", id="1", conn=conn)
            conn.rollback()
            ev.add(KIND, "gamma", id="1", conn=conn)
            conn.commit()
        work(ev)
        assert_in_step(ev, {"1": "gamma"})

    def test_two_of_them_that_make_the_same_record_make_one(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        with closing(ev.connection()) as one, closing(ev.connection()) as two:
            ev.add(KIND, "alpha", id="1", conn=one)
            ev.add(KIND, "beta", id="1", conn=two)
            one.commit()
            with pytest.raises(duckdb.Error, match="commit"):
                two.commit()
        work(ev)
        assert_in_step(ev, {"1": "alpha"})

    def test_one_that_is_dropped_or_closed_is_rolled_back(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        conn = ev.connection()
        ev.add(KIND, "alpha", id="1", conn=conn)
        del conn
        ev.add(KIND, "beta", id="2")
        conn = ev.connection()
        ev.add(KIND, "gamma", id="3", conn=conn)
        conn.close()
        ev.add(KIND, "delta", id="4")
        assert [r.id for r in ev.records()] == ["2", "4"]

    def test_searches_see_what_it_commits_at_once(self, duckdb_world: World) -> None:
        ev = duckdb_world.ev
        ev.add(KIND, "alpha", id="1", metadata={"n": 1})
        work(ev)
        assert ev.search("alpha")[0].metadata == {"n": 1}
        with closing(ev.connection()) as conn:
            ev.add(KIND, "alpha", id="1", metadata={"n": 2}, conn=conn)
            assert ev.search("alpha")[0].metadata == {"n": 1}
            conn.commit()
        assert ev.search("alpha")[0].metadata == {"n": 2}

    def test_it_ends_with_the_store(self, duckdb_world: World) -> None:
        ev = duckdb_world.open()
        conn = ev.connection()
        ev.close()
        duckdb_world.ev.close()
        with pytest.raises(duckdb.ConnectionException):
            conn.execute("select 1")


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt
