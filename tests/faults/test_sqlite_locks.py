"""Other users of the same SQLite file, with locks and long reads."""

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evervec import Evervec, Job, StoreError
from support.fault_checks import assert_true_to, open_store, settle
from support.places import contents, query
from support.processes import Start, until

NOTES = {str(n): f"note {n} about the quarry {n} and the road {n}" for n in range(5)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Only a file has these troubles."""
    return tmp_path / "notes.db"


def add_all(ev: Evervec) -> None:
    for id, text in NOTES.items():
        ev.add("note", text, id=id)


@pytest.fixture
def hasty(path: Path) -> Iterator[Evervec]:
    """The store, opened by one that waits only a little for locks."""
    with open_store(path, busy_seconds=0.1, backoff_seconds=0.05) as opened:
        yield opened


WRITES: dict[str, Callable[[Evervec, Job], Any]] = {
    "add": lambda ev, job: ev.add("note", "never there", id="new"),
    "add many": lambda ev, job: list(ev.add_many("note", [{"text": "never there"}])),
    "delete": lambda ev, job: ev.delete("note", "0"),
    "enqueue": lambda ev, job: ev.queue.enqueue("note", "0"),
    "claim": lambda ev, job: ev.queue.claim(1),
    "finish": lambda ev, job: ev.queue.finish(job),
    "fail": lambda ev, job: ev.queue.fail(job, "no good"),
    "release": lambda ev, job: ev.queue.release(job),
    "renew": lambda ev, job: ev.queue.renew(job),
    "process all": lambda ev, job: ev.process_all(),
}


def test_a_lock_held_too_long_by_another_process_is_a_clear_error(
    hasty: Evervec, path: Path, start: Start
) -> None:
    """Every write says what is wrong and leaves nothing behind; reads go on; and when the lock
    is free, all is well again."""
    add_all(hasty)
    settle(hasty)
    hasty.add("note", "waits to be claimed", id="5")
    hasty.add("note", "waits too", id="6")
    job = hasty.queue.claim(1)[0]
    before = contents(path)
    holder = start("lock", path, pause={"locked": ""})
    holder.at("locked")
    for name, write in WRITES.items():
        with pytest.raises(StoreError) as caught:
            write(hasty, job)
        message = str(caught.value)
        assert "write lock" in message, name
        assert str(path) in message
        assert "busy_seconds" in message
    assert contents(path) == before
    assert hasty.search(NOTES["1"])[0].id == "1"
    assert hasty.get("note", "1") is not None
    assert hasty.queue.stats().done == len(NOTES)
    with open_store(path, busy_seconds=0.1) as another:  # to open a file is to read it
        assert another.get("note", "1") is not None

    holder.go("locked")
    holder.at("end")
    hasty.queue.release(job)
    settle(hasty)
    assert_true_to(hasty, path, {**NOTES, "5": "waits to be claimed", "6": "waits too"})


def test_a_worker_outlives_a_lock_that_another_process_holds(
    hasty: Evervec, path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """It says that it waits, and goes on by itself."""
    add_all(hasty)
    holder = start("lock", path, pause={"locked": ""})
    holder.at("locked")
    with caplog.at_level(logging.WARNING, "evervec"), hasty.worker():
        until(lambda: caplog.text.count("the worker waits for the store") >= 2, "two complaints")
        holder.go("locked")
        until(lambda: hasty.queue.stats().done == len(NOTES), "the work to be done")
    assert_true_to(hasty, path, NOTES)


def test_an_idle_worker_outlives_a_read_that_fails(
    ev: Evervec, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking when the next job is due, it meets an error of the store, and looks again."""
    next_due, failed = ev.store.leases.next_due, threading.Event()

    def fails_once(*args: Any) -> float | None:
        if not failed.is_set():
            failed.set()
            raise StoreError("the store answered: locking protocol")
        return next_due(*args)

    monkeypatch.setattr(ev.store.leases, "next_due", fails_once)
    with ev.worker():
        assert failed.wait(30)
        add_all(ev)
        until(lambda: ev.queue.stats().done == len(NOTES), "the work to be done")
    assert_true_to(ev, path, NOTES)


def test_a_call_with_the_provider_holds_no_lock(hasty: Evervec, path: Path, start: Start) -> None:
    """However long a provider takes, others can write."""
    add_all(hasty)
    worker = start("work", path, pause={"embedding": ""})
    worker.at("embedding")
    hasty.add("note", "in the meantime", id="5")
    conn = sqlite3.connect(path, timeout=0.2)
    conn.execute("create table mine (x)")
    conn.close()
    worker.go("embedding", times=10)
    until(lambda: hasty.queue.stats().done == 6, "the work to be done")
    assert_true_to(hasty, path, {**NOTES, "5": "in the meantime"})


def test_a_claim_that_waited_for_the_lock_still_has_its_whole_lease(path: Path) -> None:
    """The lease runs from the claim, not from when it was asked for."""
    now = [1_000_000.0]
    with open_store(path, clock=lambda: now[0], lease_seconds=60, busy_seconds=30) as ev:
        ev.add("note", "a note", id="a")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("begin immediate")
        asked = threading.Event()
        ev.store.db._writer.set_trace_callback(  # type: ignore[attr-defined]
            lambda sql: asked.set() if "begin immediate" in sql else None
        )
        jobs: list[Job] = []
        thread = threading.Thread(target=lambda: jobs.extend(ev.queue.claim(1)))
        thread.start()
        assert asked.wait(30)
        now[0] += 100
        holder.execute("commit")
        holder.close()
        thread.join()
        assert jobs[0].lease_expires_at is not None
        assert jobs[0].lease_expires_at.timestamp() == now[0] + 60
        assert ev.queue.recover_stuck() == 0


def test_18_a_writer_looks_for_the_lock_often(
    ev: Evervec, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside a process that writes nearly all the time, a pause between two tries would be a chance
    missed."""
    db = ev.store.db  # type: ignore[attr-defined]
    assert db._writer.execute("pragma busy_timeout").fetchone() == (1,)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin immediate")

    class Counting:
        """The writer; the lock is free when it has looked for it so often."""

        left = 50

        def execute(self, statement: str) -> Any:
            if statement == "begin immediate":
                self.left -= 1
                if not self.left:
                    holder.execute("commit")
            return writer.execute(statement)

        def __getattr__(self, name: str) -> Any:
            return getattr(writer, name)

    writer, counting = db._writer, Counting()
    monkeypatch.setattr(db, "_writer", counting)
    with db.writing(durable=False):
        assert counting.left == 0
    monkeypatch.undo()
    holder.close()


@pytest.mark.parametrize("level", ["", "DEFERRED", "IMMEDIATE", None])
def test_a_transaction_that_read_first_can_add_when_nobody_wrote_since(
    ev: Evervec, path: Path, level: Any
) -> None:
    """Read-to-write upgrade of the caller's own deferred transaction."""
    conn = sqlite3.connect(path, isolation_level=level)
    conn.execute("begin deferred")
    assert conn.execute("select count(*) from evervec_records").fetchone() == (0,)
    ev.add("note", "added", id="a", conn=conn)
    assert ev.get("note", "a") is None  # not before the caller commits
    conn.commit()
    conn.close()
    settle(ev)
    assert_true_to(ev, path, {"a": "added"})


def test_a_transaction_whose_snapshot_is_old_is_told_what_to_do(ev: Evervec, path: Path) -> None:
    """Another wrote between the caller's read and its add: no wait can help, so the error must
    not speak of one; the caller's transaction is whole, and works when it is begun anew."""
    conn = sqlite3.connect(path)
    conn.execute("begin deferred")
    conn.execute("select count(*) from evervec_records").fetchone()
    ev.add("note", "in between", id="b")
    before = contents(path)
    with pytest.raises(StoreError) as caught:
        ev.add("note", "too late", id="a", conn=conn)
    message = str(caught.value).lower()
    assert "begin immediate" in message
    assert "for more than" not in message  # nobody holds the lock
    assert conn.in_transaction  # it is the caller's to end
    assert conn.execute("select count(*) from evervec_records").fetchone() == (0,)
    conn.rollback()
    assert contents(path) == before

    conn.execute("begin immediate")
    conn.execute("select count(*) from evervec_records").fetchone()
    ev.add("note", "in time", id="a", conn=conn)
    conn.commit()
    conn.close()
    settle(ev)
    assert_true_to(ev, path, {"a": "in time", "b": "in between"})


def test_a_failed_add_leaves_the_rest_of_the_callers_transaction_alone(
    ev: Evervec, path: Path
) -> None:
    """What the caller wrote before is still there to be committed."""
    conn = sqlite3.connect(path, timeout=0.1)
    conn.execute("create table mine (x)")
    conn.execute("insert into mine values (1)")
    with pytest.raises(ValueError, match="empty"):
        ev.add("note", "", id="a", conn=conn)
    ev.add("note", "with mine", id="a", conn=conn)
    conn.commit()
    conn.close()
    assert query(path, "select x from mine") == [(1,)]
    settle(ev)
    assert_true_to(ev, path, {"a": "with mine"})


def wal_size(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def grow_under_a_reader(ev: Evervec, path: Path) -> tuple[sqlite3.Connection, dict[str, str]]:
    """Write some megabytes while somebody reads; nobody waits for the other."""
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    assert reader.execute("select count(*) from evervec_records").fetchone() == (0,)
    words = " ".join(f"word{n}" for n in range(80))
    notes = {str(n): f"note {n} of many: {words} {n}" for n in range(400)}
    for _ in range(3):
        list(ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))
        ev.process_all()
        ev._housekeeping.sweep()  # must neither wait for the reader nor fail
        notes = {id: f"{text}, revised" for id, text in notes.items()}
    list(ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))
    settle(ev)
    assert wal_size(path) > 4 << 20
    assert reader.execute("select count(*) from evervec_records").fetchone() == (0,)
    return reader, notes


def test_the_log_that_grew_under_a_long_reader_is_cut_back_after_it(path: Path) -> None:
    """Writers are never blocked meanwhile, and housekeeping makes the file small again."""
    with open_store(path, busy_seconds=0.2) as ev:
        reader, notes = grow_under_a_reader(ev, path)
        reader.execute("rollback")
        reader.close()
        ev._housekeeping.sweep()
        assert wal_size(path) < 1 << 20
        assert ev.verify().clean
        assert ev.verify().checked == len(notes)


def test_a_running_worker_cuts_the_log_back_by_itself(path: Path) -> None:
    """With no more than its own housekeeping."""
    with open_store(path, busy_seconds=0.2, housekeeping_seconds=0.05) as ev:
        reader, _ = grow_under_a_reader(ev, path)
        with ev.worker():
            reader.execute("rollback")
            reader.close()
            until(lambda: wal_size(path) < 1 << 20, "the log to be cut back")
        assert ev.verify().clean
