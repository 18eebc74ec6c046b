"""Connections to one SQLite file: a single writer, a few readers, and clear errors.

All writes of a process go through one connection under one lock, each inside
`BEGIN IMMEDIATE`, so that no transaction ever upgrades from reading to writing.
Reads have separate connections and, thanks to the write-ahead log, never wait.
In memory there is one connection for both.

A connection is only closed by a thread that has it to itself, because SQLite crashes the process
when a connection is closed while another thread runs a statement on it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from evervec.errors import EvervecError, InvalidArgument, StoreError, ValueRefused
from evervec.model.deadlines import acquire, current, exceeded, holding, interrupting, left
from evervec.stores.paths import check_path, check_readable, make_private_file
from evervec.stores.sql.connections import check_usable, closed, driver_connection, full_name

_SAVEPOINT = "evervec_call"
_LOOK_AGAIN = "pragma busy_timeout = 1"
"""The writer tries every millisecond to take a lock that another process has. SQLite itself would wait
up to 100 ms between two tries, and so miss most of the short moments when a process that writes nearly
all the time lets go: a worker beside one that added records waited for a third of its time."""
_KEEP_IN_MEMORY = "pragma temp_store = memory"
"""Pages that a statement or savepoint may have to restore. In files, which SQLite makes for each
batch of 256, they took half of the time of writing the ledger."""


class Reader:
    """A connection for queries, used by one caller at a time. It is a plain object that is reused,
    because every search borrows several. The caller's deadline interrupts its statements."""

    __slots__ = ("_conn", "_db", "_guards")

    def __init__(self, db: Connections, conn: sqlite3.Connection) -> None:
        self._db = db
        self._conn = conn
        self._guards: list[interrupting | None] = []
        """one per open block: in memory, blocks may be nested"""

    def __enter__(self) -> sqlite3.Connection:
        guard = None if current() is None else interrupting(self._conn.interrupt)
        if guard is not None:
            try:
                guard.__enter__()
            except BaseException:
                self._db._give_back(self)
                raise
        self._guards.append(guard)
        return self._conn

    def close(self) -> None:
        self._conn.close()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if (guard := self._guards.pop()) is not None:
            guard.__exit__()
        self._db._give_back(self)
        if isinstance(error, sqlite3.Error):
            raise self._db._explain(error) from error


class _Explained:
    """Raises the driver's errors in the block as clear ones."""

    __slots__ = ("_db",)

    def __init__(self, db: Connections) -> None:
        self._db = db

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.Error):
            raise self._db._explain(error) from error


class Connections:
    """The connections of one process to one store: a `Database`."""

    def __init__(
        self,
        path: Path | None,
        busy_seconds: float,
        *,
        read_only: bool = False,
        immutable: bool = False,
    ) -> None:
        """`read_only`: the file is not changed, not even its journal mode; `immutable`: no files
        are written beside it either, which is safe only while no process writes the file."""
        self.path = path
        self.read_only = read_only
        self._immutable = immutable
        self.name = str(path) if path else "memory:"
        self._file = os.path.realpath(path) if path else None
        self._busy_seconds = busy_seconds
        self._lock = threading.RLock()
        self._idle: list[Reader] = []
        self._watcher: sqlite3.Cursor | None = None
        self._watching = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._durable: bool | None = None
        if path is not None:
            check_readable(path) if read_only else check_path(path, "evervec.db")
        with self._explained():
            if path is not None and not read_only:
                make_private_file(path)  # SQLite gives its other files the same mode
            self._writer = self._connect()
            self._own = Reader(self, self._writer)
            try:
                self._configure()
            except BaseException:
                self.close()
                raise

    def _configure(self) -> None:
        if self.path is not None and not self.read_only:
            self._use_log()
            self._writer.execute("pragma wal_autocheckpoint = 8000")
            self._writer.execute(f"pragma journal_size_limit = {64 << 20}")
        self._writer.execute("pragma cache_size = -65536")
        self._writer.execute(_KEEP_IN_MEMORY)
        self._writer.execute(_LOOK_AGAIN)

    def _use_log(self) -> None:
        """Switch to the write-ahead log, and retry while the file is locked: SQLite does not wait
        for a lock here."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                self._writer.execute("pragma journal_mode = wal")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def _connect(self) -> sqlite3.Connection:
        name: Path | str = self.path or ":memory:"
        if self.path is not None and self.read_only:
            how = "mode=ro&immutable=1" if self._immutable else "mode=ro"
            name = f"{self.path.absolute().as_uri()}?{how}"
        conn = sqlite3.connect(
            name,
            uri=self.read_only,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        if self._closed:  # meanwhile: nothing would close this one
            conn.close()
            raise closed(self.name)
        return conn

    def reading(self) -> Reader:
        """The connection counts as borrowed from this call on, so enter the block at once."""
        self._check_open()
        if self.path is None:
            acquire(self._lock)
            return self._own
        try:
            return self._idle.pop()
        except IndexError:
            pass
        with self._explained():
            return Reader(self, self._connect())

    def _give_back(self, reader: Reader) -> None:
        if self.path is None:
            self._lock.release()
        else:
            self._idle.append(reader)
            if self._closed:  # since it was borrowed
                self._close_idle()

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Keep it short: while it is open, the write-ahead log cannot be truncated."""
        with self.reading() as conn:
            if conn.in_transaction:  # in memory, called from inside a write
                yield conn
                return
            conn.execute("begin")
            try:
                yield conn
            finally:
                _roll_back(conn)

    def commits(self) -> int | None:
        """A number that changes with every commit of any process; None in memory. Reading it takes
        half the work of reading a row."""
        self._check_open()
        if self.path is None:
            return None
        with self._watching:
            try:
                if self._watcher is None:
                    self._watcher = self._connect().cursor()
                number: int = self._watcher.execute("pragma data_version").fetchone()[0]
            except sqlite3.Error as error:
                raise self._explain(error) from error
        return number

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[sqlite3.Connection]:
        if conn is not None:
            if conn is self._writer and not conn.in_transaction:
                raise StoreError(
                    f"the transaction was rolled back; nothing was written to {self.name}"
                )
            with self._explained(), join(conn) as joined:
                self._check_file(joined)
                yield joined
            return
        self._check_open()
        if self.read_only:
            raise StoreError(
                f"{self.name} is open read-only, because its file is not writable or mode=ro was "
                "requested: nothing was written"
            )
        with holding(self._lock), self._explained():
            writer = self._writer
            if self._durable is not durable:
                writer.execute(f"pragma synchronous = {'full' if durable else 'normal'}")
                self._durable = durable
            self._patiently("begin immediate", left(self._busy_seconds))
            try:
                with interrupting(writer.interrupt):
                    yield writer
                self._patiently("commit", self._busy_seconds)  # no deadline interrupts it
            except BaseException:
                _roll_back(writer)
                raise

    def _check_file(self, joined: sqlite3.Connection) -> None:
        """Refuse a caller's connection to another file, which may have a store of its own. Attached
        to another file it is refused too: SQLite does not commit to two files at once."""
        if joined is self._writer:
            return
        file: str = next(
            path for number, _, path in joined.execute("pragma database_list") if number == 0
        )
        # a hard link is another file: each of its names has a write-ahead log of its own
        if self._file not in (file, os.path.realpath(file)):
            raise StoreError(
                f"conn= is a connection to {file or 'a database in memory'}, not to {self.name}; "
                "nothing was written: give one to the store's own file"
            )

    @contextmanager
    def sorting(self) -> Iterator[sqlite3.Connection]:
        """`writing`, for a statement that sorts many rows: in files, not in memory."""
        with holding(self._lock), self._explained():
            self._writer.execute("pragma temp_store = file")
            try:
                with self.writing(durable=False) as conn:
                    yield conn
            finally:
                self._writer.execute(_KEEP_IN_MEMORY)

    def _patiently(self, statement: str, seconds: float) -> None:
        """Run a statement of the writer that needs a lock, as soon as no other process has it."""
        until = time.monotonic() + seconds
        while True:
            try:
                self._writer.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                    raise
                if time.monotonic() >= until:
                    raise exceeded() or error from error

    def checkpoint(self) -> None:
        """Truncate the write-ahead log as far as current readers allow."""
        if self.path is None or self.read_only:
            return
        with self._lock, self._explained():
            self._writer.execute("pragma wal_checkpoint(truncate)").fetchall()

    def close(self) -> None:
        """Wait for the current write, and close every connection; those that are borrowed, when
        they are given back."""
        self._closed = True
        if self._pid != os.getpid():  # they are the parent process's
            return
        with self._lock:
            self._writer.close()
        with self._watching:
            if self._watcher is not None:
                self._watcher.connection.close()
        self._close_idle()

    def _close_idle(self) -> None:
        """Close the connections that no thread uses: `pop` gives each to one thread only."""
        with suppress(IndexError):
            while True:
                self._idle.pop().close()

    def _check_open(self) -> None:
        check_usable(self.name, self._closed, self._pid)

    def _explained(self) -> _Explained:
        return _Explained(self)

    def _explain(self, error: sqlite3.Error) -> EvervecError:
        code = getattr(error, "sqlite_errorcode", None) or 0
        primary = code & 0xFF
        if primary == sqlite3.SQLITE_INTERRUPT and (ended := exceeded()):
            return ended
        if self._closed and isinstance(error, sqlite3.ProgrammingError):
            return closed(self.name)  # after this call had checked that it was open
        if primary == sqlite3.SQLITE_IOERR and self._is_full():
            primary = sqlite3.SQLITE_FULL
        if primary in _OF_A_VALUE:
            return ValueRefused(f"{self.name} rejected a value; nothing was written: {error}")
        what = _EXPLANATIONS.get(code) or _EXPLANATIONS.get(primary)
        if self.read_only and primary in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
            what = _CANNOT_READ
        if what is None:
            return StoreError(f"error in the store {self.name}: {error}")
        return StoreError(f"{what.format(name=self.name, seconds=self._busy_seconds)} ({error})")

    def _is_full(self) -> bool:
        """Whether the disk is full: SQLite may report that only as an I/O error."""
        return self.path is not None and shutil.disk_usage(self.path.parent).free < 1 << 20


_CANNOT_READ = (
    "{name} cannot be read, because SQLite must create files beside it and its folder cannot be "
    "written: copy it to another folder, or, if no process writes it, open it as "
    "sqlite:///{name}?immutable=1"
)
_OF_A_VALUE = (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
_EXPLANATIONS = {
    sqlite3.SQLITE_BUSY_SNAPSHOT: "your transaction read {name} before another one wrote it, so "
    "it can no longer write; nothing was written: roll it back, and start it with BEGIN IMMEDIATE"
    "",
    sqlite3.SQLITE_BUSY: "another process has held the write lock of {name} for more than "
    "{seconds:g} s; nothing was written: end its long transaction, or raise busy_seconds",
    sqlite3.SQLITE_LOCKED: "a table of {name} is locked by another connection; "
    "nothing was written: finish that connection's transaction and try again",
    sqlite3.SQLITE_FULL: "the disk is full; nothing was written to {name}, and saved records are "
    "safe: free some space",
    sqlite3.SQLITE_READONLY: "{name} cannot be written: check the permissions of the file and of "
    "its folder",
    sqlite3.SQLITE_NOTADB: "{name} is not an SQLite database: give another path",
    sqlite3.SQLITE_CORRUPT: "{name} is damaged: restore it from a backup",
    sqlite3.SQLITE_CANTOPEN: "{name} cannot be opened: check that its folder exists and is "
    "writable",
    sqlite3.SQLITE_IOERR: "reading or writing {name} failed: check the disk; nothing was "
    "half-written",
}


def _roll_back(conn: sqlite3.Connection) -> None:
    if conn.in_transaction:  # some errors end it already
        conn.execute("rollback")


@contextmanager
def join(conn: Any) -> Iterator[sqlite3.Connection]:
    """Run the block inside the caller's transaction, in a savepoint."""
    given, conn = conn, driver_connection(conn)
    if not isinstance(conn, sqlite3.Connection):
        raise InvalidArgument(
            "conn= must be a sqlite3.Connection to this store's file (or a SQLAlchemy or Django "
            f"connection over one), not {full_name(given)}"
        )
    if not conn.in_transaction and conn.isolation_level is not None:
        conn.execute("begin immediate")  # as sqlite3 itself does before a write
    rows, texts = conn.row_factory, conn.text_factory
    conn.row_factory, conn.text_factory = None, str
    conn.execute(f"savepoint {_SAVEPOINT}")
    try:
        yield conn
    except BaseException:
        if conn.in_transaction:
            conn.execute(f"rollback to {_SAVEPOINT}")
            conn.execute(f"release {_SAVEPOINT}")
        raise
    else:
        conn.execute(f"release {_SAVEPOINT}")
    finally:
        conn.row_factory, conn.text_factory = rows, texts
