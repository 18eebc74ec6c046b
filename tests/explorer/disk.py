"""The disk under an SQLite store in memory: one for all processes of a world.

Every process has a `Connections` of its own over one SQLite connection: transactions never
overlap, because actors only change places between them. All of it happens inside savepoints, so
that a world is put back, or a power cut undoes what was not synced, within microseconds. Each
statement's tables are learnt once, so that the search knows which transactions commute.
"""

import os
import sqlite3
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Protocol

from evervec.errors import StoreError
from evervec.opening import open_store
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.sqlite.connections import Connections, Reader
from evervec.stores.sqlite.schema import upgrade
from explorer.steps import (
    AWAY,
    EVERYTHING,
    GO,
    LOST,
    NOTHING,
    STARTS,
    STORE,
    Access,
    Step,
)  # fmt: skip

INDEX_BIT = 1
"""stands for an index apart from the store, among the bits of tables"""
_NOTHING = (0, 0)
_ALL = Access(EVERYTHING, EVERYTHING)
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_CHANGES_SCHEMA = ("create", "drop", "alter")
_SAYS_NOTHING = ("evervec_text", "sqlite_", "pragma_", "json_")
"""full text follows the records; the others are no tables"""
_LOOKS_AT_NO_TABLE = ("savepoint", "release", "rollback", "pragma", "begin", "commit")

Ask = Callable[[Step], str]
"""waits for a turn to take a step, and tells what is to happen to it"""


class Actor(Protocol):
    """What is known here of a process of the world."""

    name: str
    pending: Step | None

    @property
    def goes_on(self) -> bool:
        """Whether it takes its next step without waiting for a turn."""
        ...

    def ask(self, step: Step) -> str: ...

    def committed(self, what: str) -> None: ...


@dataclass
class _Known:
    """What is known of the statements of one schema."""

    bits: dict[str, int] = field(default_factory=dict)
    """of tables"""
    masks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """the tables that a statement reads and writes"""


_known: dict[int, _Known] = defaultdict(_Known)
"""by the schema: to learn the statements again for each disk would take a twentieth of all time"""


class _Watched(sqlite3.Connection):
    """Notes which tables the statements of a step read and write, and what they find."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.reads = self.writes = self.seen = 0
        self._is_new_schema = True
        self._known = _Known()
        self.watch(follows=False)

    def watch(self, *, follows: bool) -> None:
        """`follows`: note what is touched and seen from now on. Else all statements are the
        driver's own, and only whether something was written is known."""
        self.row_factory = self._row if follows else None
        for name in ("execute", "executemany", "cursor"):
            vars(self).pop(name, None)
            if not follows:
                vars(self)[name] = getattr(super(), name)
        self._is_new_schema = True  # nobody saw what was done before
        self.follows = follows
        self.begin()

    def begin(self) -> None:
        """Note from here on."""
        self.reads = self.writes = self.seen = 0
        self._before = self.total_changes

    def touched(self) -> Access:
        """By the statements since `begin`."""
        if self.follows:
            return Access(self.reads, self.writes)
        return NOTHING if self.total_changes == self._before else _ALL

    def _row(self, cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> tuple[Any, ...]:
        self.seen = hash((self.seen, row))
        return row

    def execute(self, sql: str, values: Any = (), /) -> sqlite3.Cursor:
        reads, writes = self._known.masks.get(sql) or self._learn(sql, values)
        self.reads |= reads
        self.writes |= writes
        found = super().execute(sql, values)
        self.seen = hash((self.seen, sql, found.rowcount))
        return found

    def executemany(self, sql: str, rows: Any, /) -> sqlite3.Cursor:
        rows = list(rows)
        if rows:
            reads, writes = self._known.masks.get(sql) or self._learn(sql, rows[0])
            self.reads |= reads
            self.writes |= writes
        found = super().executemany(sql, rows)
        self.seen = hash((self.seen, sql, found.rowcount))
        return found

    def cursor(self, *args: Any, **named: Any) -> Any:
        self.writes = EVERYTHING  # nobody sees what is done with it
        return super().cursor(*args, **named)

    def _learn(self, sql: str, values: Any) -> tuple[int, int]:
        start = sql.lstrip().lower()
        if start.startswith(_LOOKS_AT_NO_TABLE):
            self._known.masks[sql] = _NOTHING
            return _NOTHING
        reads = writes = 0

        def see(action: int, table: str | None, *_: object) -> int:
            nonlocal reads, writes
            if table is not None and action in _WRITES:
                writes |= self._bit(table)
            elif table is not None and action == sqlite3.SQLITE_READ:
                reads |= self._bit(table)
            return sqlite3.SQLITE_OK

        self.set_authorizer(see)
        seen = self.seen
        try:
            super().execute(f"explain {sql}", values).fetchall()
        finally:
            self.set_authorizer(None)
            self.seen = seen  # that was no step's own
        if start.startswith(_CHANGES_SCHEMA):
            self._is_new_schema = True
            self._known = _Known(dict(self._known.bits))
            return EVERYTHING, EVERYTHING
        self._known.masks[sql] = (reads, writes)
        return reads, writes

    def learn_anew(self) -> None:
        """After a change of the schema: a statement may write more by triggers that are new."""
        if self._is_new_schema and self.follows:
            found = super().execute("select type, name, sql from sqlite_schema order by name")
            schema = found.fetchall()
            self._known = _known[hash(tuple(schema))]
            for kind, name, _ in schema:
                if kind == "table":
                    self._bit(name)  # so that states have the same tables from the first one on
            self._is_new_schema = False

    def _bit(self, table: str) -> int:
        bits = self._known.bits
        return bits.setdefault(table, 2 << len(bits))

    def tables_in(self, access: Access) -> list[str]:
        """Those that a step touched."""
        touched = access.reads | access.writes
        return [table for table, bit in self._known.bits.items() if touched & bit]

    def digests(self, written: int, known: dict[str, int]) -> dict[str, int]:
        """A hash of each table's content, made anew for those that were written."""
        made = dict(known)
        for table, bit in self._known.bits.items():
            if (written & bit or table not in made) and not table.startswith(_SAYS_NOTHING):
                made[table] = self._digest(table)
        return made

    def _digest(self, table: str) -> int:
        try:
            rows = super().execute(f'select * from "{table}"').fetchall()
        except sqlite3.OperationalError:
            return 0
        return hash(tuple(sorted(map(repr, rows))))


class Disk:
    """What is stored, what of it is synced, and which transaction is open."""

    options: ClassVar[dict[str, Any]] = {}
    """settings of evervec that it needs"""

    def __init__(self) -> None:
        self.conn = sqlite3.connect(
            ":memory:", isolation_level=None, factory=_Watched, cached_statements=1024
        )
        self.is_open = False
        """a transaction is under way"""
        self.held_by: Actor | None = None
        """whose transaction has been left open: SQLite has one writer"""
        self.on_sync: Callable[[], None] = lambda: None
        self.may_lose = True
        """whether the power may be cut, so that it matters what is synced"""
        self.has_synced = False
        """since `begin`"""
        _new_store().backup(self.conn)
        self.keep()

    @property
    def follows(self) -> bool:
        return self.conn.follows

    def watch(self, *, follows: bool) -> None:
        """`follows`: note from the next `reset` on what is touched and seen."""
        if follows != self.conn.follows:
            self.conn.watch(follows=follows)

    @property
    def seen(self) -> int:
        """A hash of all that was read since `begin`."""
        return self.conn.seen

    def open_store(self, process: Actor, settings: Settings) -> Store:
        """As one process has it."""
        with opening(DiskConnections(self, process)):
            return open_store("memory:", settings)

    def is_open_for(self, process: Actor) -> bool:
        """Whether evervec has a transaction open in this process."""
        return self.is_open

    def lets(self, process: Actor) -> bool:
        """Whether a process can take its next step: all that need the store wait for a transaction
        that was left open. Readers would see what was before; to wait is one of their orders."""
        if self.held_by is None or self.held_by is process:
            return True
        step = process.pending
        assert step is not None
        return step.resource != STORE and step.what != STARTS

    def unblock(self, waiting: Sequence[Actor]) -> bool:
        """Whether somebody can go on after all, where all wait."""
        return False

    def caller(self, process: Actor) -> "CallersTransaction":
        """Begin a transaction of the application's own."""
        return CallersTransaction(self, process)

    def died(self, process: Actor) -> None:
        """Its open transaction is gone with it."""
        if self.held_by is process:
            self.conn.execute("rollback to caller")
            self.conn.execute("release caller")
            self.held_by = None

    def end(self, processes: Iterable[Actor]) -> None:
        """The run is over."""

    def keep(self) -> None:
        """What is stored now is what `reset` goes back to. It is committed: after a rollback over
        a change of the schema all statements would have to be prepared again."""
        if self.conn.in_transaction:
            self.conn.execute("commit")
        self.conn.learn_anew()
        self.conn.execute("savepoint kept")
        self.conn.execute("savepoint synced")

    def reset(self) -> bool:
        """As it was at the last `keep`; False where that is no longer known."""
        self.conn.execute("rollback to kept")
        # once a transaction has changed the schema, each rollback inside it makes all statements
        # be prepared again: it ends here
        self.conn.execute("release kept")
        self.conn.execute("savepoint kept")
        self.conn.learn_anew()
        self.is_open = False
        self.held_by = None
        self.conn.execute("savepoint synced")
        return True

    def committed(self, *, durable: bool) -> None:
        if durable and self.may_lose:
            self.has_synced = True
            self.conn.execute("release synced")
            self.conn.execute("savepoint synced")
            self.on_sync()

    def cut_power(self) -> None:
        """What was not synced is gone."""
        self.held_by = None
        self.conn.execute("rollback to synced")

    def begin(self) -> None:
        """Note from here on what is touched and seen."""
        self.conn.begin()
        self.has_synced = False

    def touched(self) -> Access:
        """By the statements since `begin`."""
        return self.conn.touched()


@cache
def _new_store() -> sqlite3.Connection:
    """A store in which nothing is yet."""
    made = Disk.__new__(Disk)
    made.conn = sqlite3.connect(":memory:", isolation_level=None, factory=_Watched)
    made.is_open, made.may_lose = False, False
    upgrade(DiskConnections(made))
    return made.conn


class CallersTransaction:
    """A transaction of the application's own, which evervec's calls are a part of."""

    def __init__(self, disk: Disk, process: Actor) -> None:
        self._disk = disk
        self.conn = disk.conn
        self.conn.execute("savepoint caller")
        disk.held_by = process

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """Inside, `conn` may be given to evervec."""
        self._disk.is_open = True
        try:
            yield self.conn
        finally:
            self._disk.is_open = False

    def commit(self, then: Callable[[], None]) -> None:
        """`then`: what is so as soon as it is committed."""
        self.conn.execute("release caller")
        self._disk.held_by = None
        then()
        self._disk.committed(durable=True)

    def roll_back(self) -> None:
        self._disk.conn.execute("rollback to caller")
        self._disk.conn.execute("release caller")
        self._disk.held_by = None


_opening: list["DiskConnections"] = []


@contextmanager
def opening(connections: "DiskConnections") -> Iterator[None]:
    """Inside, a store in memory is one over these connections."""
    _opening.append(connections)
    try:
        yield
    finally:
        _opening.pop()


def being_opened(*_: object) -> "DiskConnections":
    """Those of the process that is being opened."""
    return _opening[-1]


class DiskConnections(Connections):
    """The connections of one process, each transaction a step that the scheduler allows."""

    def __init__(self, disk: Disk, process: Actor | None = None) -> None:
        self.path = None
        self.read_only = False
        self.name = "memory:"
        self._file = None
        self._busy_seconds = 5.0
        self._lock = threading.RLock()
        self._idle, self._closed, self._pid = [], False, os.getpid()
        self._writer = disk.conn
        self._own = Reader(self, self._writer)
        self.disk = disk
        self._process = process

    def reading(self) -> Reader:
        process = self._process
        if process is not None and not process.goes_on and not self.disk.is_open:
            action = process.ask(Step(STORE, calling_method(), False))
            if action in (AWAY, LOST):
                raise StoreError("the store cannot be reached")
        if self._closed:
            self._check_open()
        return self._own

    def _give_back(self, reader: Reader) -> None:
        """One thread has all of it: there is nothing to wait for."""

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[sqlite3.Connection]:
        if conn is not None:
            with super().writing(durable=durable, conn=conn) as joined:
                yield joined
            return
        assert not self.disk.is_open, "a transaction inside a transaction"
        self._check_open()
        caller = calling_method()
        process = self._process
        action = GO if process is None else process.ask(Step(STORE, caller, True))
        if action == AWAY:
            raise StoreError("the store cannot be reached")
        with self._explained(), self.transaction(durable=durable, what=caller) as writer:
            yield writer
        if action == LOST:
            raise StoreError("the store did not answer")

    @contextmanager
    def transaction(self, *, durable: bool, what: str) -> Iterator[sqlite3.Connection]:
        """All or nothing, without asking for a turn."""
        disk, conn = self.disk, self.disk.conn
        disk.is_open = True
        conn.execute("savepoint step")
        try:
            yield conn
        except BaseException:
            conn.execute("rollback to step")
            raise
        finally:
            conn.execute("release step")
            disk.is_open = False
        if self._process is not None:
            self._process.committed(what)
        disk.committed(durable=durable)


_OWN_FILES = (
    __file__, "contextlib.py", "sql/retries.py", "sql/engine.py", "connections.py",
    "explorer/postgres.py", "explorer/duckdb.py",
)  # fmt: skip


def calling_method() -> str:
    """The method that asks for a transaction, for scripts."""
    frame = sys._getframe(2)
    while frame.f_code.co_filename.endswith(_OWN_FILES) and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_name
