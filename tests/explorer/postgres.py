"""A real PostgreSQL under a world: the steps are transactions and, inside them, statements.

Every process has connections of its own. What psycopg would wait for goes through `Steered.wait`:
a statement that waits for a lock hands over to the scheduler, and its process cannot go on until
the server says that nobody is in its way. So transactions overlap as they do between machines. The
server's clock is the world's, by a function that reads a table. Before each run all tables are put
back.
"""

import atexit
import os
import re
import select
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from evervec.errors import StoreError
from evervec.indexes.pgvector.table import SQL as POINTS
from evervec.indexes.pgvector.table import PointsTable
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.connections import Connections, Session, _name
from evervec.stores.postgres.database import OwnDatabase
from explorer.disk import Actor, calling_method
from explorer.ruling import START, Clock
from explorer.steps import AWAY, GO, LOST, SQL, STORE, Access, InTheWay, Step
from support import postgres

_sleep = time.sleep
_READY = {1: select.POLLIN, 2: select.POLLOUT, 3: select.POLLIN | select.POLLOUT}
_FIRST_LOOK, _LOOK_AGAIN = 2, 5
"""milliseconds for an answer, before the server is asked whether the statement waits for a lock"""
_SETTINGS = "-c deadlock_timeout=20ms"
_PATIENCE = 60.0
"""seconds after which nobody breaks a circle of waiting any more: many, because a busy machine may
take long to see one, and a wait for the server's own vacuum ends by itself"""
_NEVER = 3600.0
"""seconds for locks and idle transactions, which the server measures by its own clock: a slow
schedule must not be ended by it"""
_VACUUM_AFTER = 200
_WAITS = "select cardinality(pg_blocking_pids(%s)) > 0"
_WAITS_FOR = "select pg_blocking_pids(%s) && %s::int[]"
_CUT = "select count(pg_terminate_backend(pid)) from unnest(%s::int[]) as pid"
_LEFT = "select count(*) from pg_stat_activity where pid = any (%s)"
_PREPARED = "select gid from pg_prepared_xacts where database = current_database()"
_COLUMNS = """
select t.schemaname, t.tablename, array_agg(a.attname::text order by a.attnum)
from pg_tables as t
join pg_attribute as a on a.attrelid = format('%I.%I', t.schemaname, t.tablename)::regclass
where a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
    and (t.schemaname = 'evervec' and t.tablename <> 'meta'
         or t.schemaname = 'public' and t.tablename <> 'test_clock')
group by 1, 2 order by 1, 2
"""
_SEQUENCES = (
    "select sequencename, start_value, last_value from pg_sequences where schemaname = 'evervec'"
)


class Steered(psycopg.Connection[Any]):
    """A connection whose owner hands over between statements, and while one waits for a lock."""

    disk: "PostgresDisk"
    owner: Actor
    what = ""
    returns = False
    """whether it is kept when its user closes it"""
    free = 0
    """statements that belong to the step which is under way"""

    def wait(self, gen: Any, interval: float = 0.0, timeout: float | None = None) -> Any:
        if self.free > 0:
            self.free -= 1
        else:
            self.owner.ask(Step(SQL, self.what, False))
        try:
            state = next(gen)
            while True:
                state = gen.send(self._ready(state))
        except StopIteration as end:
            return end.value

    def _ready(self, state: int) -> int:
        """Wait for the server's answer, or for a turn when another transaction is in the way."""
        poll = select.poll()
        poll.register(self.pgconn.socket, _READY[state])
        pause = _FIRST_LOOK
        while not (events := poll.poll(pause)):
            pause = _LOOK_AGAIN
            if self.disk.waits(self):
                self.disk.hand_over(self)
        event = events[0][1]
        if event & (select.POLLHUP | select.POLLERR) and not event & select.POLLIN:
            raise psycopg.OperationalError("the connection was cut")
        return (1 if event & select.POLLIN else 0) | (2 if event & select.POLLOUT else 0)

    def close(self) -> None:
        """One that is idle is kept for the next who wants one: a new one knows no tables."""
        if self.returns and self.is_idle:
            self.disk.take_back(self)
        else:
            super().close()

    @property
    def has_answer(self) -> bool:
        poll = select.poll()
        poll.register(self.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def is_idle(self) -> bool:
        return not self.closed and self.info.transaction_status == TransactionStatus.IDLE


class PostgresClock(Clock):
    """The world's clock, which is the server's too."""

    def __init__(self, url: str) -> None:
        self._shown = postgres.DatabaseClock(url, START)

    @property
    def now(self) -> float:
        return self._shown.now

    @now.setter
    def now(self, moment: float) -> None:
        if moment != self._shown.now:
            self._shown.now = moment


class Database:
    """The one database of this process, which the worlds have one after the other."""

    def __init__(self) -> None:
        self.url = postgres.DATABASES.borrow()
        self.admin = psycopg.connect(self.url, autocommit=True)
        self.owner: PostgresDisk | None = None
        self.free: list[Steered] = []
        self.resets = 0
        atexit.register(self._close)

    def _close(self) -> None:
        for conn in (self.admin, *self.free):
            conn.close()

    def connect(self) -> Steered:
        return Steered.connect(
            self.url, autocommit=True, prepare_threshold=2, options=_SETTINGS,
            application_name="evervec",
        )  # fmt: skip


@cache
def _database(pid: int) -> Database:
    return Database()


class PostgresDisk:
    """What is stored, and who waits for whom."""

    is_open = False
    seen = 0
    follows = may_lose = False
    held_by: Actor | None = None

    def __init__(self) -> None:
        self.database = _database(os.getpid())
        self.url = self.database.url
        self.admin = self.database.admin
        self.conn = _Translated(self.admin)
        self.on_sync: Callable[[], None] = lambda: None
        self._borrowed: dict[int, list[Steered]] = {}
        self._idle: dict[int, list[Steered]] = {}
        self._others: dict[int, list[Steered]] = {}
        self._blocked: dict[int, Steered] = {}
        self._kept: list[tuple[sql.Composed, bytes]] = []
        self._take()
        self.options = {
            "clock": self.clock, "listen": False, "hnsw_rows": 0, "busy_seconds": _NEVER,
        }  # fmt: skip

    # between runs
    def _take(self) -> None:
        """Empty it, for a world of one's own."""
        self._end_prepared()
        postgres.empty(self.url)
        self.clock = PostgresClock(self.url)
        self.database.owner = self

    def keep(self) -> None:
        """What is stored now is what `reset` goes back to."""
        tables = self.admin.execute(_COLUMNS).fetchall()
        self._tables = {(schema, table) for schema, table, _ in tables}
        self._points = [PointsTable(*row) for row in self.admin.execute(POINTS.tables).fetchall()]
        self._kept = []
        for schema, table, columns in tables:
            place = sql.SQL("{} ({})").format(
                sql.Identifier(schema, table), sql.SQL(", ").join(map(sql.Identifier, columns))
            )
            with self.admin.cursor().copy(sql.SQL("copy {} to stdout").format(place)) as out:
                if rows := b"".join(map(bytes, out)):
                    self._kept.append((place, rows))
        self._numbers = [
            sql.SQL("select setval({}, {}, {})").format(
                f"evervec.{name}", last or start, last is not None
            )
            for name, start, last in self.admin.execute(_SEQUENCES).fetchall()
        ]

    def reset(self) -> bool:
        """As it was at the last `keep`; False where that must be made again."""
        if self.database.owner is not self:
            self._take()
            return False
        self.database.resets += 1
        if self.database.resets % _VACUUM_AFTER == 0:
            self.admin.execute("vacuum")
        there = {(s, t) for s, t, _ in self.admin.execute(_COLUMNS).fetchall()}
        extra = [sql.SQL("drop table {}").format(sql.Identifier(*t)) for t in there - self._tables]
        missing = {t for s, t in self._tables - there}
        with self.admin.transaction():
            self.admin.execute("set local session_replication_role = replica")
            for table in self._points:
                if table.name in missing:
                    for statement in table.creation():
                        self.admin.execute(statement)
                    self.admin.execute(table.sql(POINTS.create_tenant_index))
            deletes = [
                sql.SQL("delete from {}").format(sql.Identifier(*table)) for table in self._tables
            ]
            self.admin.execute(sql.SQL("; ").join([*extra, *deletes, *self._numbers]))
            for place, rows in self._kept:
                with self.admin.cursor().copy(sql.SQL("copy {} from stdin").format(place)) as into:
                    into.write(rows)
        return True

    def end(self, processes: Iterable[Actor]) -> None:
        """The run is over: what is still open is rolled back."""
        for conns in (*self._borrowed.values(), *self._others.values()):
            self._cut(conns)
        for conns in self._idle.values():
            self.database.free += [conn for conn in conns if conn.is_idle]
        self._borrowed, self._idle, self._others, self._blocked = {}, {}, {}, {}
        self._end_prepared()

    def _end_prepared(self) -> None:
        for (name,) in self.admin.execute(_PREPARED).fetchall():
            self.admin.execute(sql.SQL("rollback prepared {}").format(name))

    # during a run
    def watch(self, *, follows: bool) -> None:
        """Nothing is noted."""

    def begin(self) -> None:
        """What is touched is not noted."""

    def touched(self) -> Access:
        return Access()

    def cut_power(self) -> None:
        raise NotImplementedError("the server's own log is not simulated")

    def open_store(self, process: Actor, settings: Settings) -> Store:
        def made(url: str, given: Settings) -> SteeredConnections:
            return SteeredConnections(self, process, given)

        with mock.patch("evervec.stores.postgres.store.Connections", made):
            return PostgresStore(self.url, settings)

    def borrow(self, process: Actor) -> Steered:
        """A connection for a process."""
        idle = self._idle.setdefault(id(process), [])
        conn = idle.pop() if idle else self._free()
        conn.disk, conn.owner, conn.free, conn.what = self, process, 1, ""
        self._borrowed.setdefault(id(process), []).append(conn)
        return conn

    def connect(self, process: Actor, what: str) -> Steered:
        """A connection that its user closes."""
        conn = self._free()
        conn.disk, conn.owner, conn.free, conn.what = self, process, 1, what
        conn.returns = True
        self._others.setdefault(id(process), []).append(conn)
        return conn

    def take_back(self, conn: Steered) -> None:
        conn.returns = False
        self._others[id(conn.owner)].remove(conn)
        self.database.free.append(conn)

    def _free(self) -> Steered:
        while self.database.free:
            conn = self.database.free.pop()
            if conn.is_idle:
                return conn
        return self.database.connect()

    def give_back(self, conn: Steered) -> None:
        mine = self._borrowed.get(id(conn.owner), [])
        if conn in mine:  # else its process is dead
            mine.remove(conn)
            if conn.is_idle:
                self._idle[id(conn.owner)].append(conn)
            else:
                conn.close()

    def is_open_for(self, process: Actor) -> bool:
        """Whether evervec has a transaction open in this process."""
        return any(not conn.is_idle for conn in self._borrowed.get(id(process), ()))

    def waits(self, conn: Steered) -> bool:
        """Whether a statement waits for another transaction."""
        row = self.admin.execute(_WAITS, (conn.info.backend_pid,)).fetchone()
        return bool(row and row[0])

    def hand_over(self, conn: Steered) -> None:
        if conn.owner.goes_on and self._is_stuck(conn):
            self._cut([conn])
            raise InTheWay
        self._blocked[id(conn.owner)] = conn
        conn.owner.ask(Step(SQL, "waits for a lock", False))
        self._blocked.pop(id(conn.owner), None)

    def _is_stuck(self, conn: Steered) -> bool:
        """Whether a statement waits for a process that waits for its turn; other waits end by
        themselves."""
        others = [*self._borrowed.values(), *self._others.values()]
        busy = [c for conns in others for c in conns if not (c.closed or c.is_idle)]
        pids = [0, *(c.info.backend_pid for c in busy)]  # 0 has what is prepared
        row = self.admin.execute(_WAITS_FOR, (conn.info.backend_pid, pids)).fetchone()
        return bool(row and row[0])

    def lets(self, process: Actor) -> bool:
        """Whether nobody is in the way of a process."""
        conn = self._blocked.get(id(process))
        while conn is not None and not conn.has_answer:
            if self.waits(conn):
                return False
            _sleep(0.0002)  # it has what it waited for, and goes on
        return True

    def unblock(self, waiting: Sequence[Actor]) -> bool:
        """Wait for the server to break a circle."""
        for _ in range(int(_PATIENCE / 0.005)):
            if any(self.lets(process) for process in waiting):
                return True
            _sleep(0.005)
        return False

    def died(self, process: Actor) -> None:
        """The server rolls back what a process had open."""
        self._blocked.pop(id(process), None)
        self._cut(self._borrowed.pop(id(process), []) + self._others.pop(id(process), []))

    def _cut(self, conns: list[Steered]) -> None:
        pids = [conn.info.backend_pid for conn in conns if not conn.closed]
        if pids:
            self.admin.execute(_CUT, (pids,))
            while self.admin.execute(_LEFT, (pids,)).fetchone() != (0,):
                _sleep(0.0002)
        for conn in conns:
            conn.returns = False
            conn.close()

    def caller(self, process: Actor) -> "CallersTransaction":
        return CallersTransaction(self, process)


class CallersTransaction:
    """A transaction of the application's own, on a connection of its own."""

    def __init__(self, disk: PostgresDisk, process: Actor) -> None:
        self._disk = disk
        self._conn = disk.connect(process, "in a transaction of the application")
        # names are the server's, which the databases of all processes of the explorer share
        self._name = f"explorer {os.getpid()} {process.name}"
        self._is_prepared = False
        self._execute("begin")

    def _execute(self, statement: str) -> None:
        self._conn.free = 1
        self._conn.execute(statement.encode())

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """Inside, the connection may be given to evervec."""
        yield self._conn

    def prepare(self) -> None:
        self._execute(f"prepare transaction '{self._name}'")
        self._is_prepared = True

    def commit(self, then: Callable[[], None]) -> None:
        """`then`: what is so as soon as it is committed."""
        self._end("commit")
        then()
        self._conn.close()

    def roll_back(self) -> None:
        if not self._conn.closed:
            self._end("rollback")
            self._conn.close()

    def _end(self, how: str) -> None:
        self._execute(f"{how} prepared '{self._name}'" if self._is_prepared else how)


class SteeredConnections(Connections):
    """The connections of one process, each transaction a step that the scheduler allows."""

    def __init__(self, disk: PostgresDisk, process: Actor, settings: Settings) -> None:
        self.url = disk.url
        self.name, self._secret = _name(self.url)
        self._pid = os.getpid()
        self._busy_ms = int(settings.busy_seconds * 1000)
        self._wait = settings.connect_seconds
        self._prepare = self._closed = False
        self._own = OwnDatabase(self.name)
        self.disk = disk
        self._process = process
        self.pool: Any = self

    # what the store asks of its pool
    @contextmanager
    def connection(self, timeout: float) -> Iterator[Steered]:
        conn = self.disk.borrow(self._process)
        try:
            yield conn
        finally:
            self.disk.give_back(conn)

    def dedicated(self) -> Any:
        return self.disk.connect(self._process, "beside its transaction")

    def close(self) -> None:
        self._closed = True

    @contextmanager
    def _step(self, what: str, *, writes: bool) -> Iterator[None]:
        """One step, and what is to happen to it."""
        action = self._process.ask(Step(STORE, what, writes))
        if action == AWAY or (action != GO and not writes):
            raise StoreError("the store cannot be reached")
        yield
        if writes:
            self._process.committed(what)
        if action == LOST:
            raise StoreError("the store did not answer")

    @contextmanager
    def _read(self, what: str) -> Iterator[Session]:
        with super().reading() as session:
            session.raw.what = what  # type: ignore[attr-defined]
            yield session

    @contextmanager
    def reading(self) -> Iterator[Session]:
        what = calling_method()
        with self._step(what, writes=False), self._read(what) as session:
            yield session

    @contextmanager
    def statement(self) -> Iterator[Session]:
        what = calling_method()
        with self._step(what, writes=True), self._read(what) as session:
            yield session

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[Session]:
        if conn is not None:
            with super().writing(durable=durable, conn=conn) as joined:
                yield joined
            return
        what = calling_method()
        with (
            self._step(what, writes=True),
            self._read(what) as session,
            self._transaction(session, durable),
        ):
            yield session

    @contextmanager
    def transaction(self, *, durable: bool, what: str) -> Iterator[Any]:
        """Of the application, on a table of its own; the turn was asked for."""
        with self._read(what) as session, self._transaction(session, durable):
            yield _Translated(session)

    @contextmanager
    def _transaction(self, session: Session, durable: bool) -> Iterator[None]:
        raw: Any = session.raw
        raw.free = 2  # its beginning, and the first statement
        with super()._transaction(session, durable):
            yield
            self._process.ask(Step(SQL, f"commit of {raw.what}", True))
            raw.free = 1


class _Translated:
    """Statements as SQLite has them."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    def execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        if isinstance(self._conn, Session):
            numbers = iter(range(1, 100))
            statement = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
            return self._conn.execute(statement, values)
        return self._conn.execute(statement.replace("?", "%s").encode(), values or None)
