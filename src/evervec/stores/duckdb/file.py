"""A DuckDB file that this process has open: the engine's connections, one lock, one counter.

DuckDB allows one process at a time, with any number of threads. So the lock that orders writers is
in memory, and every store of this process that opens the same file shares it.
"""

from __future__ import annotations

import os
import re
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import duckdb

from evervec.errors import StoreError

Raw = duckdb.DuckDBPyConnection

_BLOCK = 10_000
_HOLDER = re.compile(r"lock is held in (?P<program>.+?) \(PID (?P<pid>\d+)\)")


class File:
    """An open file, shared by stores: `File.open` adds a user, and `leave` removes one."""

    _all: ClassVar[dict[Path, File]] = {}
    _opening: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, path: Path) -> None:
        self.path = path
        self.pid = os.getpid()
        self.writer = _connect(path)
        self.lock = threading.RLock()
        """held for the whole of every transaction that writes"""
        self.broken = False
        """DuckDB has invalidated the database after a fatal error, and must be restarted"""
        self._lending = threading.Lock()
        self._readers: weakref.WeakSet[Raw] = weakref.WeakSet()
        """connections of the running engine, idle or borrowed"""
        self._idle: list[Raw] = []
        self._lent = 0
        """how many are borrowed"""
        self._closing: list[Raw] = []
        """to be closed as soon as no thread uses them"""
        self.written = 0
        """the last number taken before the writer's latest commit"""
        self.slots: weakref.WeakKeyDictionary[Raw, int] = weakref.WeakKeyDictionary()
        """the callers' connections, each with its row in `evervec_callers`"""
        self._free_slots: list[int] = []
        self._aside = self.writer.cursor()
        self._last = self._reserved = -1
        self._users = 0

    @classmethod
    def open(cls, path: Path) -> File:
        path = path.resolve()
        with cls._opening:
            file = cls._all.get(path)
            if file is None:
                file = cls._all[path] = cls(path)
            elif file.pid != os.getpid():
                raise StoreError(
                    f"{path} was opened before this process was forked from process {file.pid}, "
                    "and DuckDB allows only one process: open it after the fork, in one process"
                )
            file._users += 1
            return file

    def leave(self) -> None:
        with File._opening:
            self._users -= 1
            if self._users or self.pid != os.getpid():
                return
            del File._all[self.path]
            with self.lock:
                self._close()

    def _close(self) -> None:
        with self._lending:
            self._closing += (*self.slots, *self._idle, self._aside, self.writer)
            self._idle.clear()
            self._readers.clear()
            self._close_unused()

    def _close_unused(self) -> None:
        """Close what no thread is using; the rest when it is given back. To close the writer also
        closes the readers, which are made from it: when the file is left, borrowed ones first
        finish what they read, but an engine that is restarted has nothing more to say. DuckDB
        refuses to close a connection while a statement runs on it."""
        if self._lent and not self._users:
            return
        used = []
        for conn in self._closing:
            try:
                conn.close()
            except duckdb.ResourceInUseException:
                used.append(conn)
        self._closing = used

    def restart_broken(self) -> None:
        """Restart the engine if it is broken, as after a failed write to the file. Committed
        transactions are in its log."""
        with self.lock:
            if self.broken:
                self._close()
                self.writer = _connect(self.path)
                self._aside = self.writer.cursor()
                self.broken = False

    def borrow(self) -> Raw:
        """A connection for reading."""
        with self._lending:
            if self._idle:
                conn = self._idle.pop()
            else:
                conn = self.writer.cursor()
                self._readers.add(conn)
            self._lent += 1
            return conn

    def give_back(self, conn: Raw) -> None:
        with self._lending:
            self._lent -= 1
            if self._users and conn in self._readers:
                self._idle.append(conn)
            else:  # the file was left, or the engine restarted, meanwhile
                self._closing.insert(0, conn)
                self._close_unused()

    def take(self, count: int) -> range:
        """The next `count` numbers of the store's counter.

        Numbers come from memory. The file holds only the end of the reserved block, so a crash
        skips the rest of the block; no number is used twice.
        """
        with self.lock:
            if self._last < 0:
                self._last = self._reserved = self._counter()
            first, self._last = self._last + 1, self._last + count
            if self._last > self._reserved:
                upto = self._last + _BLOCK
                counter = "update evervec_meta set value = $1 where key = 'counter'"
                self._aside.execute(counter, [upto])
                self._reserved = upto
            return range(first, self._last + 1)

    def raise_counter(self, above: int) -> None:
        """Skip all numbers up to and including `above`."""
        with self.lock:
            (last,) = self.take(1)
            if above > last:
                self.take(above - last)

    def _counter(self) -> int:
        found = self._aside.execute("select value from evervec_meta where key = 'counter'")
        row = found.fetchone()
        assert row is not None
        (value,) = row
        return int(value)

    def commit(self) -> None:
        """Commit the writer's transaction."""
        self.writer.execute("commit")
        if self._last >= 0:
            self.written = self._last

    def aside(self, query: str, values: list[object]) -> None:
        """Run one statement that commits even if the transaction around it is rolled back."""
        with self.lock:
            self._aside.execute(query, values)

    def for_caller(self) -> Raw:
        """A connection for the caller's transactions."""
        with self.lock:
            conn = self.writer.cursor()
            if self._free_slots:
                slot = self._free_slots.pop()
            else:
                (slot,) = self.take(1)
                self._aside.execute("insert into evervec_callers values ($1, 0)", [slot])
            self.slots[conn] = slot
            weakref.finalize(conn, self._free_slots.append, slot)
        return conn

    def caller_writes(self) -> bool:
        """Whether a caller's open transaction has written to the store. Then its row in
        `evervec_callers` cannot be updated; there is no other way to detect it before it ends."""
        if not self.slots:
            return False
        self._aside.execute("begin")
        try:
            self._aside.execute("update evervec_callers set calls = calls")
        except duckdb.TransactionException:
            return True
        finally:
            with suppress(duckdb.Error):
                self._aside.execute("rollback")
        return False


def _connect(path: Path) -> Raw:
    is_new = not path.exists()
    try:
        connected = duckdb.connect(str(path))
        if is_new:
            path.chmod(0o600)  # afterwards: DuckDB rejects a file that was created in advance
        return connected
    except duckdb.IOException as error:
        if is_new:  # the incomplete file is no valid database, and every later open would fail
            path.unlink(missing_ok=True)
        held = _HOLDER.search(str(error))
        if held is None:
            raise
        raise StoreError(
            f"{path} is open in another process (PID {held['pid']}, {held['program']}), and DuckDB "
            "allows only one at a time: end that process, or use SQLite or PostgreSQL, which "
            "several processes can share"
        ) from error
