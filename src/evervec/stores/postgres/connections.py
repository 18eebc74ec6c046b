"""Connections to one PostgreSQL database: a pool, transactions, and clear errors.

Queries use PostgreSQL's own parameters (`$1`). All settings of a transaction are set inside it,
so that a pooler such as PgBouncer can be used.
"""

from __future__ import annotations

import logging
import os
import selectors
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from evervec.errors import (
    EvervecError,
    InvalidArgument,
    StoreError,
    ValueRefused,
)
from evervec.model.deadlines import current, exceeded, left
from evervec.settings import Settings
from evervec.stores.postgres.awaited import AwaitedSession, session_of
from evervec.stores.postgres.database import OwnDatabase
from evervec.stores.postgres.interrupts import Interrupt
from evervec.stores.postgres.packed_lists import Packed, PackedDumper, pack
from evervec.stores.sql.connections import (
    Reached,
    check_usable,
    closed,
    driver_connection,
    full_name,
)
from evervec.stores.sql.retries import CallersConflict, Conflict

_SAVEPOINT = "evervec_call"
_BY_KEY = "".join(f"set local enable_{way} = off; " for way in ("seqscan", "hashjoin", "mergejoin"))
_BY_KEY += "set local plan_cache_mode = force_generic_plan"
"""Writes find their rows by key, a batch at a time. The planner overestimates batches and would
scan whole tables. With scans disabled, one generic plan suits all batches and is not made again for
each."""
Raw = psycopg.Connection[Any]

# the pool logs each attempt to reconnect; the errors raised here say what matters
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)


psycopg.adapters.register_dumper(Packed, PackedDumper)  # before any connection is made


class Session:
    """A connection for the store's queries: `$1` parameters and rows as tuples, regardless of the
    settings of the connection's owner."""

    __slots__ = ("raw",)

    def __init__(self, raw: Raw) -> None:
        self.raw = raw

    def execute(self, query: str, values: Sequence[Any] = (), *, binary: bool = False) -> Any:
        """`binary`: the server returns numbers in binary form, which saves converting to text."""
        cursor = psycopg.RawCursor(self.raw, row_factory=tuple_row)
        given = pack(query, values) if values else None
        return cursor.execute(query.encode(), given, binary=binary)

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(query, row)

    @property
    def usable(self) -> bool:
        """Whether statements can still be sent."""
        return not (self.raw.broken or self.raw.closed)

    @property
    def alone(self) -> bool:
        """Whether the caller is in no transaction, so that each call commits."""
        return self.raw.autocommit and self.raw.info.transaction_status == TransactionStatus.IDLE


class Connections:
    """The connections of one process to one store: a `Database`."""

    def __init__(self, url: str, settings: Settings) -> None:
        self.url = url
        self.name, self._secret = _name(url)
        self._pid = os.getpid()
        self._busy_ms = int(settings.busy_seconds * 1000)
        self._wait = settings.connect_seconds
        self._prepare = settings.postgres_prepare
        self._own = OwnDatabase(self.name)
        self._closed = False
        self.pool: ConnectionPool[Raw] = ConnectionPool(
            url,
            kwargs={
                "autocommit": True,
                "prepare_threshold": 5 if self._prepare else None,
                "connect_timeout": max(2, int(self._wait)),
                "application_name": "evervec",
            },
            min_size=0,
            num_workers=1,
            max_size=settings.postgres_connections,
            timeout=self._wait,
            reconnect_timeout=1.0,
            configure=self._configure if self._prepare else None,
            check=_still_there,
            open=False,
        )
        try:
            with self.explained():
                self.dedicated().close()  # an invalid URL fails here, at once
                self.pool.open()
        except BaseException:
            self.close()
            raise

    def _configure(self, conn: Raw) -> None:
        # a generic plan scans whole tables for lists of numbers
        conn.execute("set plan_cache_mode = force_custom_plan")

    def dedicated(self) -> Raw:
        """A connection outside the pool, for long use."""
        return psycopg.connect(
            self.url,
            autocommit=True,
            prepare_threshold=None,
            connect_timeout=max(2, int(self._wait)),
            application_name="evervec",
        )

    @contextmanager
    def reading(self) -> Iterator[Session]:
        replica = _REPLICA.get()
        with (self if replica is None else replica)._session() as session:
            yield session

    @contextmanager
    def _session(self) -> Iterator[Session]:
        self._check_open()
        with self.explained(), self.pool.connection(left(self._wait)) as raw:
            if current() is None:
                yield Session(raw)
                return
            with Interrupt(raw):
                yield Session(raw)

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        with self.reading() as session:
            session.execute("begin isolation level repeatable read, read only")
            try:
                yield session
            finally:
                _roll_back(session.raw)

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[Any]:
        if conn is not None:
            try:
                with self.explained(), join(conn) as joined:
                    self._own.check(joined, self._session)
                    yield joined
            except Conflict as error:  # only the caller can retry the whole transaction
                raise CallersConflict(str(error)) from error
            return
        with self._session() as session, self._transaction(session, durable):
            yield session

    @contextmanager
    def aside(self) -> Iterator[Session]:
        """A second transaction beside the current one, for locks that must not be held until the
        current one ends. It uses a connection outside the pool: threads that each held a pooled
        connection and waited for a second one would deadlock."""
        self._check_open()
        with self.explained(), self.dedicated() as raw:
            session = Session(raw)
            with self._transaction(session, durable=True):
                yield session

    @contextmanager
    def _transaction(self, session: Session, durable: bool) -> Iterator[None]:
        # a process that is suspended in a transaction must not hold its locks until it resumes
        begin = (
            f"begin; set local lock_timeout = {self._busy_ms}; "
            f"set local idle_in_transaction_session_timeout = {2 * self._busy_ms}; {_BY_KEY}"
        )
        if not durable:
            begin += "; set local synchronous_commit = off"
        session.execute(begin)
        try:
            yield
            with self.explained():
                session.execute("commit")
        except BaseException:
            _roll_back(session.raw)
            raise

    def close(self) -> None:
        self._closed = True
        if self._pid == os.getpid():
            self.pool.close()

    def _check_open(self) -> None:
        check_usable(self.name, self._closed, self._pid)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Convert driver errors to errors that say what to do."""
        try:
            yield
        except (PoolClosed, PoolTimeout, psycopg.Error) as error:
            raise self._explain(error) from _without_secret(error, self._secret)

    def _explain(self, error: Exception) -> EvervecError:
        if isinstance(error, _AFTER_THE_END) and (ended := exceeded()):
            return ended
        if isinstance(error, PoolClosed):
            return closed(self.name)
        if isinstance(error, PoolTimeout):
            return StoreError(
                f"no connection to {self.name} within {self._wait:g} s: it is unreachable, or all "
                "connections are in use (max_connections, postgres_connections)"
            )
        said = " ".join(str(error).split())
        if self._secret:
            said = said.replace(self._secret, "…")
        if isinstance(error, (errors.DeadlockDetected, errors.SerializationFailure)):
            return Conflict(f"{self.name}: conflict with another transaction: {said}")
        what = _EXPLANATIONS.get(type(error))
        if what is not None:
            seconds = self._busy_ms / 1000
            return StoreError(f"{what.format(name=self.name, seconds=seconds)} ({said})")
        if isinstance(error, _OF_A_VALUE):
            return ValueRefused(f"{self.name} rejected a value; nothing was written: {said}")
        if isinstance(error, psycopg.OperationalError):
            return StoreError(
                f"the connection to {self.name} was lost or refused; retry unacknowledged writes, "
                f"nothing else is lost: check that the server is running ({said})"
            )
        return StoreError(f"error in the store {self.name}: {said}")


_AFTER_THE_END = (PoolTimeout, errors.QueryCanceled)
_OF_A_VALUE = (psycopg.DataError, psycopg.IntegrityError, errors.ProgramLimitExceeded)
"""errors about one value, such as a key that is too long for an index"""
_ELSEWHERE = "conn= is not a connection to {name}: give one to the database with the schema evervec"
_STRANGER = "{name} rejected the login: check user name and password"
_EXPLANATIONS: dict[type[Exception], str] = {
    errors.LockNotAvailable: "another transaction has held a lock in {name} for more than "
    "{seconds:g} s; nothing was written: end that transaction, or raise busy_seconds",
    errors.ReadOnlySqlTransaction: "{name} is read-only now (a standby, or set so by its "
    "operator); nothing was written: give the address of the primary, or wait until it is "
    "writable again",
    errors.DiskFull: "the disk of {name} is full; nothing was written, and saved records are safe: "
    "free some space",
    errors.OutOfMemory: "the server of {name} has no memory or no locks left; nothing was written: raise "
    "max_locks_per_transaction, which many partitions need (see `evervec doctor`)",
    errors.InsufficientPrivilege: "the user of {name} lacks a privilege: it must own the schema "
    "evervec, or be allowed to create it",
    errors.UndefinedTable: _ELSEWHERE,
    errors.InvalidSchemaName: _ELSEWHERE,
    errors.InvalidPassword: _STRANGER,
    errors.InvalidAuthorizationSpecification: _STRANGER,
    errors.InvalidCatalogName: "{name} does not exist: create the database, or give another",
    errors.TooManyConnections: "all connections of {name} are in use: raise max_connections",
}


_REPLICA: ContextVar[Connections | None] = ContextVar("evervec_replica", default=None)
"""what this thread reads from instead"""


@contextmanager
def reading_from(replica: Connections) -> Iterator[None]:
    """Reads of this thread go to a replica; writes do not."""
    token = _REPLICA.set(replica)
    try:
        yield
    finally:
        _REPLICA.reset(token)


def _name(url: str) -> tuple[str, str]:
    """The store's name in logs and errors, and the password, which must not appear in them."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.ProgrammingError:
        raise StoreError(
            "the URL of the PostgreSQL store is malformed: it must look like "
            "postgresql://user:password@host:5432/database"
        ) from None
    host = str(parts.get("host") or parts.get("hostaddr") or "")
    if "/" in host:  # a socket's folder
        host = ""
    port = f":{parts['port']}" if host and parts.get("port") else ""
    database = parts.get("dbname") or ""
    return f"postgresql://{host}{port}/{database}", unquote(str(parts.get("password") or ""))


def _without_secret(error: Exception, secret: str) -> Exception | None:
    return None if secret and secret in str(error) else error


def _readable(fileno: int) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(fileno, selectors.EVENT_READ)
        return bool(selector.select(0))


def _still_there(conn: Raw) -> None:
    """Reject a pooled connection that the server has closed. The socket of such a connection is
    readable, which is checked without a round trip."""
    if _readable(conn.fileno()):
        conn.pgconn.consume_input()
        if conn.pgconn.status != psycopg.pq.ConnStatus.OK:
            raise psycopg.OperationalError("the server closed the connection")


def _roll_back(raw: Raw) -> None:
    if raw.broken or raw.closed:
        return
    if raw.info.transaction_status != TransactionStatus.IDLE:
        try:
            raw.execute("rollback")
        except psycopg.Error:
            raw.close()


@contextmanager
def join(conn: Any) -> Iterator[Session | AwaitedSession]:
    """The caller's transaction, with the statements of this call under one savepoint."""
    session = _session_of(conn)
    if not session.alone:
        with step(session):
            yield session
        return
    session.execute("begin")
    try:
        yield session
    except BaseException:
        if session.usable:
            with suppress(psycopg.Error):  # the error that caused it says more
                session.execute("rollback")
        raise
    else:
        session.execute("commit")


def _session_of(conn: Any) -> Session | AwaitedSession:
    raw = driver_connection(conn)
    if isinstance(raw, Reached):
        return session_of(raw)
    if not isinstance(raw, psycopg.Connection):
        raise InvalidArgument(
            "conn= must be a psycopg.Connection to this store's database (or a SQLAlchemy or "
            f"Django connection over psycopg 3), not {full_name(conn)}"
        )
    raw.adapters.register_dumper(Packed, PackedDumper)  # it may be older than our registration
    return Session(raw)


@contextmanager
def step(session: Any) -> Iterator[None]:
    """A savepoint: a part of a transaction that can fail and be rolled back by itself."""
    session.execute(f"savepoint {_SAVEPOINT}")
    try:
        yield
    except BaseException:
        if session.usable:
            session.execute(f"rollback to {_SAVEPOINT}; release {_SAVEPOINT}")
        raise
    else:
        session.execute(f"release {_SAVEPOINT}")
