"""Connections to one DuckDB file: a single writer, a reader for each reading thread, and clear
errors.

All writes of the process go through one connection under one lock, so they never conflict.
With `conn=`, a call joins the caller's transaction on a connection from the store; other writers
wait until that transaction ends. DuckDB has no savepoints: a call that fails inside a caller's
transaction aborts the whole transaction.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import duckdb

from evervec.errors import EvervecError, InvalidArgument, StoreError, ValueRefused
from evervec.model.deadlines import acquire, check, exceeded, interrupting, left
from evervec.stores.duckdb.file import File, Raw
from evervec.stores.paths import check_path
from evervec.stores.sql.connections import closed, full_name

_LOOK_AGAIN = 0.01
_PARSED: dict[str, duckdb.Statement] = {}
"""The parsed statements of all stores. An execution copies its statement and binds the copy, so
threads and connections can share it."""
_MOST_PARSED = 1000
_CALLS = "select coalesce(sum(calls), 0)::bigint from evervec_callers"


class Result:
    """The result of a statement; valid until the next statement on its connection."""

    __slots__ = ("_raw", "rowcount")

    def __init__(self, raw: Raw) -> None:
        self._raw = raw
        self.rowcount: int = raw.rowcount

    def fetchone(self) -> Any:
        return self._raw.fetchone()

    def fetchall(self) -> list[Any]:
        return self._raw.fetchall()

    def fetchmany(self, size: int) -> list[Any]:
        return self._raw.fetchmany(size)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._raw.fetchall())


class Session:
    """A connection for the store's queries."""

    __slots__ = ("raw",)

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def execute(self, query: str, values: Sequence[Any] = ()) -> Result:
        return Result(self.raw.execute(self._parsed(query), values or None))

    def _parsed(self, query: str) -> duckdb.Statement | str:
        """The statement, which is parsed only once: that takes a sixth of an `add`."""
        parsed = _PARSED.get(query)
        if parsed is None:
            statements = self.raw.extract_statements(query)
            if len(statements) > 1:
                return query
            (parsed,) = statements
            if len(_PARSED) < _MOST_PARSED:
                _PARSED[query] = parsed
        return parsed

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.raw.execute(query, row)


class Connections:
    """The connections of one store: a `Database`."""

    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path = path
        self.name = str(path)
        self.url = f"duckdb:///{path}"
        self._busy_seconds = busy_seconds
        self._closed = False
        check_path(path, "evervec.duckdb")
        try:
            self.file = File.open(path)
        except duckdb.Error as error:
            raise self._explain(error) from error

    @contextmanager
    def reading(self) -> Iterator[Session]:
        self._check_open()
        with self._explained():
            raw = self.file.borrow()
            try:
                with interrupting(raw.interrupt):
                    yield Session(raw)
            finally:
                self.file.give_back(raw)

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        with self.reading() as session:
            session.raw.execute("begin")
            try:
                yield session
            finally:
                _roll_back(session.raw)

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[Session]:
        """It is on disk when this returns, with or without `durable`."""
        if conn is not None:
            with self._joined(conn) as session:
                yield session
            return
        self._check_open()
        file = self.file
        self._take_turn()
        try:
            with self._explained():
                file.writer.execute("begin")
                try:
                    with interrupting(file.writer.interrupt):
                        yield Session(file.writer)
                    file.commit()  # outside `interrupting`: no deadline interrupts a commit
                except BaseException:
                    _roll_back(file.writer)
                    raise
        finally:
            file.lock.release()

    def _take_turn(self) -> None:
        """Take the writers' lock once no caller has an open transaction that has written."""
        deadline = time.monotonic() + left(self._busy_seconds)
        while True:
            acquire(self.file.lock)
            busy = True
            try:
                with self._explained():
                    busy = self.file.caller_writes()
            finally:
                if busy:
                    self.file.lock.release()
            if not busy:
                return
            if time.monotonic() > deadline:
                check()
                raise StoreError(
                    "a transaction on a connection of ev.connection() has been open for more than "
                    f"{self._busy_seconds:g} s; nothing was written to {self.name}: commit it or "
                    "roll it back, or raise busy_seconds"
                )
            time.sleep(_LOOK_AGAIN)

    @contextmanager
    def _joined(self, conn: Any) -> Iterator[Session]:
        """The caller's transaction, which the statements of this call join."""
        self._check_open()
        if not isinstance(conn, Raw):
            raise InvalidArgument(
                f"conn= must be a connection from ev.connection(), not {full_name(conn)}"
            )
        slot = self.file.slots.get(conn)
        if slot is None:
            raise StoreError(
                f"conn= is not a connection to {self.name} from ev.connection(); nothing was "
                "written"
            )
        with self.file.lock, self._explained():
            if not _in_transaction(conn):
                conn.execute("begin")
            try:
                conn.execute(
                    "update evervec_callers set calls = calls + 1 where caller = $1", [slot]
                )
                yield Session(conn)
            except BaseException:
                # abort the transaction: a partial call must not be committed (no savepoints)
                with suppress(duckdb.Error):
                    conn.execute("select error('a call of evervec failed in this transaction')")
                raise

    def connection(self) -> Raw:
        """A connection for the caller's transactions, to pass as `conn=`."""
        self._check_open()
        with self._explained():
            return self.file.for_caller()

    def mark(self) -> int:
        """A number that differs after every change that searches can see."""
        written = self.file.written  # read first: a commit in between changes the next mark
        with self.reading() as conn:
            calls: int = conn.execute(_CALLS).fetchone()[0]
        return written + calls

    def checkpoint(self) -> None:
        """Write the log into the file, unless an open transaction prevents it."""
        with self.file.lock, self._explained(), suppress(duckdb.TransactionException):
            self.file.writer.execute("checkpoint")

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.file.leave()

    def _check_open(self) -> None:
        if self._closed:
            raise closed(self.name)
        if self.file.pid != os.getpid():
            raise StoreError(
                f"the store {self.name} was opened before this process was forked; DuckDB allows "
                f"only one process, and that is process {self.file.pid}"
            )
        if self.file.broken:
            with self._explained():
                self.file.restart_broken()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except duckdb.Error as error:
            self.file.broken |= isinstance(error, duckdb.FatalException)
            raise self._explain(error) from error

    def _explain(self, error: duckdb.Error) -> EvervecError:
        if isinstance(error, duckdb.InterruptException) and (ended := exceeded()):
            return ended
        if self._closed and isinstance(error, duckdb.ConnectionException):
            return closed(self.name)  # after this call had checked that it was open
        said = " ".join(str(error).split())
        for sign, what in _EXPLANATIONS.items():
            if sign in said:
                return StoreError(f"{what.format(name=self.name)} ({said})")
        if isinstance(error, _OF_A_VALUE):
            return ValueRefused(f"{self.name} rejected a value; nothing was written: {said}")
        return StoreError(f"error in the store {self.name}: {said}")


_OF_A_VALUE = (duckdb.DataError, duckdb.IntegrityError)

_EXPLANATIONS = {
    "Conflict on": "your transaction and another one changed the same record of {name}; nothing of "
    "yours was written: roll it back, and retry it",
    "transaction is aborted": "an earlier statement of your transaction failed, so it cannot write "
    "to {name}: roll it back",
    "No space left": "the disk is full; nothing was written to {name}, and saved records are safe: "
    "free some space",
    "not a valid DuckDB": "{name} is not a DuckDB database: give another path",
    "database has been invalidated": "{name} could not be written; nothing was written, and saved "
    "records are safe: the next call reopens it",
    "Connection Error": "the connection was closed: get another from ev.connection()",
}


def _roll_back(raw: Raw) -> None:
    with suppress(duckdb.TransactionException):  # some errors end the transaction themselves
        raw.execute("rollback")


def _in_transaction(raw: Raw) -> bool:
    """Whether a transaction is open: then two statements have the same transaction id. A `begin`
    inside a transaction would abort it."""
    first, second = (raw.execute("select txid_current()").fetchone() for _ in range(2))
    return first == second
