"""The server restarts, turns read-only, falls silent, or keeps what is dead."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from evervec import Evervec, StoreError
from evervec.stores.postgres import PostgresStore
from evervec.stores.sql import fronts
from support import postgres
from support.fault_checks import assert_true_to, open_store, outcomes, settle
from support.processes import Start, until

NOTES = {str(n): f"note {n} about the harbour {n}" for n in range(20)}
QUICK = {"lease_seconds": 1.0, "backoff_seconds": 0.1, "connect_seconds": 2.0}


@pytest.fixture
def path() -> Iterator[str]:
    url = postgres.DATABASES.borrow()
    yield url
    postgres.DATABASES.give_back(url)


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    """A server that may be restarted."""
    folder = Path(f"{os.environ[postgres.FOLDER]}-restarted-{os.getpid()}")
    server = postgres.Server(folder)
    yield server
    server.stop()
    postgres.remove(folder)


@pytest.fixture
def freeze() -> Iterator[Callable[[list[int]], None]]:
    """Stops processes of the server, until the end of the test."""
    frozen: list[int] = []

    def stop(pids: list[int]) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
            frozen.append(pid)

    yield stop
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)


def add_all(ev: Evervec, notes: dict[str, str]) -> None:
    """Add records, each again until the store took it."""
    for id, text in notes.items():

        def added(id: str = id, text: str = text) -> bool:
            try:
                ev.add("note", text, id=id)
            except StoreError:
                return False
            return True

        until(added, "the store to take a record")


def test_workers_go_on_after_the_server_was_restarted(
    own_server: postgres.Server, start: Start
) -> None:
    """A server of the test's own is stopped under two workers, once idle and once at work."""
    server = own_server
    with open_store(server.url, **QUICK) as ev:
        workers = [start("work", server.url, settings=QUICK) for _ in range(2)]
        until(lambda: len(_listeners(server.url)) == 2, "the workers to be there")
        notes = dict(NOTES)
        add_all(ev, notes)
        until(lambda: ev.queue.stats().done == len(notes), "the first notes to be done")
        for turn in range(2):
            more = {f"{turn}-{id}": f"turn {turn} of {text}" for id, text in NOTES.items()}
            ev.queue.enqueue_many("note", [str(n) for n in range(20)])  # something to be at
            server.stop()
            with pytest.raises(StoreError):
                ev.add("note", "nobody takes this", id="x")
            server.start()
            add_all(ev, more)
            notes |= more
        until(
            lambda: ev.queue.stats().done == len(notes),
            "all notes to be done",
        )
        assert [worker.log for worker in workers if not worker.running] == []
        settle(ev)
        assert_true_to(ev, server.url, notes)


def test_workers_go_on_through_a_storm_of_terminated_connections(path: str, start: Start) -> None:
    """Every connection of the database is cut, again and again, while records come in."""
    with open_store(path, **QUICK) as ev:
        workers = [start("work", path, settings=QUICK) for _ in range(2)]
        until(lambda: len(_listeners(path)) == 2, "the workers to be there")
        for id, text in NOTES.items():
            add_all(ev, {id: text})
            postgres.execute(
                path,
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and pid <> pg_backend_pid()",
            )
        until(lambda: _calm(ev), "the queue to be empty")
        assert [worker.log for worker in workers if not worker.running] == []
        assert_true_to(ev, path, NOTES)


def _calm(ev: Evervec) -> bool:
    try:
        stats = ev.queue.stats()
    except StoreError:
        return False
    return not stats.pending and not stats.processing


def test_workers_wait_while_the_database_is_read_only(path: str, start: Start) -> None:
    """Writes say so clearly; reads and searches go on; then so does the work."""
    with open_store(path, **QUICK) as ev:
        ev.add("note", NOTES["0"], id="0")
        worker = start("work", path, settings=QUICK)
        worker.at("finished")
        _set_read_only(path, True)
        error = _refusal(ev)
        assert "read-only" in error
        assert ev.get("note", "0") is not None
        assert [hit.id for hit in ev.search("harbour", mode="text")] == ["0"]
        _set_read_only(path, False)
        add_all(ev, NOTES)
        until(lambda: _calm(ev), "the queue to be empty")
        assert worker.running, worker.log
        assert_true_to(ev, path, NOTES)


def _set_read_only(url: str, on: bool) -> None:
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    switch = f"alter database {database} set default_transaction_read_only = {on}"
    postgres.execute(postgres.server_url(), switch)
    postgres.execute(
        postgres.server_url(),
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1",
        database,
    )


def _refusal(ev: Evervec) -> str:
    """What the store says to a write, once it has its new connections."""
    for _ in range(20):
        try:
            ev.add("note", "not now", id="x")
        except StoreError as error:
            if "lost" not in str(error):
                return str(error)
    raise AssertionError("the write was taken")


def test_a_finish_whose_connection_was_cut_is_done_once(path: str) -> None:
    """The commit went through and its answer did not: the same finish again changes nothing."""
    with open_store(path) as ev:
        ev.add("note", "the text", id="a")
        job = ev.queue.claim(1)[0]
        ev.queue.finish(job)
        before = postgres.execute(path, "select * from evervec.current_attempts")
        ev.queue.finish(job)
        assert postgres.execute(path, "select * from evervec.current_attempts") == before


def test_a_worker_frozen_inside_a_transaction_loses_its_locks(path: str, start: Start) -> None:
    """It holds the rows that it finishes when it stops answering: the server ends its transaction,
    the lease runs out, and another does the work. Back again, it finishes nothing."""
    notes = {"a": NOTES["0"]}
    with open_store(path, **QUICK) as ev:
        add_all(ev, notes)
        brief = {**QUICK, "lease_seconds": 0.4, "busy_seconds": 1.0}
        worker = start("work", path, pause={"applying": ""}, settings=brief)
        worker.at("applying")
        worker.freeze()
        assert _is_idle_in_transaction(path)
        until(ev.queue.recover_stuck, "the lease to run out and its locks to be gone")
        settle(ev)
        assert_true_to(ev, path, notes)

        worker.thaw()
        worker.go("applying", times=10)
        add_all(ev, more := {"b": NOTES["1"]})
        worker.at("finished", "b")
        until(lambda: _calm(ev), "the queue to be empty")
        assert_true_to(ev, path, notes | more)
        assert outcomes(ev, "a") == ["crashed", "done"]
        assert outcomes(ev, "b") == ["done"]


def _is_idle_in_transaction(url: str) -> bool:
    rows = postgres.execute(
        url,
        "select pid from pg_stat_activity "
        "where datname = current_database() and state = 'idle in transaction'",
    )
    return bool(rows)


def _listeners(url: str) -> list[int]:
    rows = postgres.execute(
        url,
        "select pid from pg_stat_activity "
        "where datname = current_database() and query = 'listen evervec'",
    )
    return [row[0] for row in rows]


def test_a_worker_that_is_told_need_not_poll(path: str, start: Start) -> None:
    """With a poll of an hour, a record is embedded at once, and its waiter learns of it."""
    slow = {"poll_seconds": 3600.0}
    with open_store(path, **slow) as ev:
        start("work", path, settings=slow)
        until(lambda: _listeners(path), "the worker to listen")
        for n in range(3):
            ticket = ev.add("note", f"note {n}", id=n)
            assert ev.wait(ticket, 60).record_id == str(n)
        with closing(postgres.connect(path)) as conn:
            ticket = ev.add("note", "by the caller's own transaction", id="c", conn=conn)
            conn.commit()
        assert ev.wait(ticket, 60).record_id == "c"


def test_a_listener_that_hears_nothing_costs_no_more_than_the_poll(
    path: str, start: Start, freeze: Callable[[list[int]], None]
) -> None:
    """Its connection is frozen on the server's side: nobody is told that it is dead."""
    with open_store(path, poll_seconds=0.5) as ev:
        start("work", path, settings={"poll_seconds": 0.5})
        until(lambda: _listeners(path), "the worker to listen")
        freeze(_listeners(path))
        ev.wait(ev.add("note", "the text", id="a"), 60)


def test_a_listener_whose_connection_is_cut_listens_again(path: str) -> None:
    with open_store(path) as ev:
        ev.store.wait(ev.store.wait(-1, 0), 0.01)
        until(lambda: _listeners(path), "it to listen")
        (first,) = _listeners(path)
        postgres.execute(path, "select pg_terminate_backend($1)", first)
        until(lambda: _listeners(path) not in ([], [first]), "it to listen again")


def test_claims_stay_flat_while_an_old_transaction_keeps_what_is_dead(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is finished cannot be cleared away; a claim does not walk over it."""
    monkeypatch.setattr(fronts, "SLOW", 0.0)
    monkeypatch.setattr(fronts, "_SHARE", 1e9)
    with closing(postgres.connect(path)) as old, open_store(path) as ev:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("select 1")
        ev.queue.enqueue_many("note", range(6_000))
        costs = []
        for _ in range(22):
            ev.queue.finish_many(ev.queue.claim(250))
            costs.append(_pages_of_a_claim(ev, path))
        assert max(costs[-5:]) < 1.5 * max(costs[1:6])
        # there was something to walk over
        assert _pages_of_a_claim(ev, path, from_the_front=True) > 2 * max(costs)


@pytest.mark.parametrize("kind", ["reads", "writes", "is prepared"])
def test_an_alert_names_the_transaction_and_an_all_clear_follows(
    path: str, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One that looks at an old snapshot, one that wrote something and then nothing more, and one
    that waits for the second half of a commit. Each is told once."""
    with open_store(path, alert_transaction_seconds=0.01) as ev, closing(_old(path, kind)) as old:
        until(lambda: ev.store.troubles(0.01), "the transaction to be old")
        for _ in range(3):
            ev._housekeeping.sweep()
        (alert,) = ev._housekeeping.alerts.lasting()
        assert alert.text.startswith("a transaction has been open for")
        assert ("(prepared as half)" if kind == "is prepared" else "forgetful") in alert.text
        old.tpc_rollback() if kind == "is prepared" else old.rollback()
        ev._housekeeping.sweep()
        ev._housekeeping.sweep()
        told = [m for m in caplog.messages if "transaction" in m]
        assert [m[:7] for m in told] == ["[ALERT]", "[CLEAR]"]


def _old(url: str, kind: str) -> psycopg.Connection[tuple[object, ...]]:
    conn = psycopg.connect(url, application_name="forgetful")
    if kind == "reads":
        conn.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        conn.execute("select 1")
    elif kind == "writes":
        conn.execute("select pg_current_xact_id()")
    else:
        conn.tpc_begin("half")
        conn.execute("select pg_current_xact_id()")
        try:
            conn.tpc_prepare()
        except psycopg.NotSupportedError as error:
            pytest.skip(str(error))
    return conn


def test_a_role_without_rights_over_others_is_alerted_too(path: str) -> None:
    """It is not told when a transaction of another role began, so it counts from when it first
    saw it."""
    postgres.execute(path, "drop role if exists evervec_watcher")
    postgres.execute(path, "create role evervec_watcher")
    for what in ("usage on schema", "all on all tables in schema"):
        postgres.execute(path, f"grant {what} evervec to evervec_watcher")
    with closing(_old(path, "reads")):
        watching = f"{path}{'&' if '?' in path else '?'}options=-c%20role%3Devervec_watcher"
        with open_store(watching) as ev:
            (hidden,) = postgres.execute(
                watching,
                "select xact_start from pg_stat_activity where application_name = 'forgetful'",
            )
            assert hidden == (None,)
            assert ev.store.troubles(0.2) == []
            until(lambda: ev.store.troubles(0.2), "the transaction to be old")
            assert "forgetful" in ev.store.troubles(0.2)[0]
    postgres.execute(path, "drop owned by evervec_watcher")
    postgres.execute(path, "drop role evervec_watcher")


def _pages_of_a_claim(ev: Evervec, url: str, *, from_the_front: bool = False) -> int:
    """The pages that the next claim looks at."""
    assert isinstance(ev.store, PostgresStore)
    known = ([],) * 4 if from_the_front else ev.store.engine.fronts.known((None, (1 << 31) - 1))
    query = b"explain (analyze, buffers, format json) select * from evervec.next_jobs("
    with psycopg.connect(url, cursor_factory=psycopg.RawCursor) as conn:
        for _ in range(2):  # the first time it also reads what the function says
            plan = conn.execute(
                query + b"10, 1e12, null, 10, $1, $2, $3, $4, '')", known
            ).fetchone()
        conn.rollback()
    assert plan is not None
    top = plan[0][0]["Plan"]
    return int(top["Shared Hit Blocks"]) + int(top["Shared Read Blocks"])
