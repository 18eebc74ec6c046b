"""A caller's connection of an asynchronous driver, psycopg or asyncpg, inside whose transaction a call
of the store runs.

The store's code runs in a thread. Each of its statements is run in the event loop of the connection,
while the caller's task awaits the call.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from evervec.errors import InvalidArgument
from evervec.stores.postgres.packed_lists import Packed, PackedDumper, pack
from evervec.stores.sql.connections import Reached, full_name, is_of

_COMMENT = re.compile(r"--[^\n]*")
_COMMANDS = frozenset(
    [
        "insert",
        "update",
        "delete",
        "begin",
        "commit",
        "rollback",
        "savepoint",
        "release",
        "set",
        "lock",
        "notify",
    ]
)
"""statements without rows, unless they have `returning`"""


class Rows:
    """The rows of a statement, all of them read."""

    def __init__(self, rows: Sequence[Any], rowcount: int) -> None:
        self._rows = iter(rows)
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def fetchone(self) -> Any:
        return next(self._rows, None)

    def fetchall(self) -> list[Any]:
        return list(self._rows)


class AwaitedSession(ABC):
    """A `Session` over a connection of an event loop."""

    def __init__(self, raw: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.raw = raw
        self._loop = loop

    def execute(self, query: str, values: Sequence[Any] = (), *, binary: bool = False) -> Rows:
        running = self._run(query, values, binary)
        return asyncio.run_coroutine_threadsafe(running, self._loop).result()

    def executemany(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.execute(query, row)

    @abstractmethod
    def _run(
        self, query: str, values: Sequence[Any], binary: bool
    ) -> Coroutine[Any, Any, Rows]: ...

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Whether statements can still be sent."""

    @property
    @abstractmethod
    def alone(self) -> bool:
        """Whether the caller is in no transaction, so that each call commits."""


class PsycopgSession(AwaitedSession):
    """Over `psycopg.AsyncConnection`."""

    def __init__(self, raw: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(raw, loop)
        raw.adapters.register_dumper(Packed, PackedDumper)  # it may be older than our registration

    async def _run(self, query: str, values: Sequence[Any], binary: bool) -> Rows:
        cursor = psycopg.AsyncRawCursor(self.raw, row_factory=tuple_row)
        given = pack(query, values) if values else None
        await cursor.execute(query.encode(), given, binary=binary)
        rows = await cursor.fetchall() if cursor.description else ()
        return Rows(rows, cursor.rowcount)

    @property
    def usable(self) -> bool:
        return not (self.raw.broken or self.raw.closed)

    @property
    def alone(self) -> bool:
        idle = self.raw.info.transaction_status == TransactionStatus.IDLE
        return bool(self.raw.autocommit and idle)


class AsyncpgSession(AwaitedSession):
    """Over `asyncpg.Connection`. Its errors are raised as psycopg's, which the store knows."""

    async def _run(self, query: str, values: Sequence[Any], binary: bool) -> Rows:
        import asyncpg

        try:
            if _has_rows(query):
                found = await self.raw.fetch(query, *values)
                return Rows([tuple(row) for row in found], len(found))
            status = await self.raw.execute(query, *values)
        except asyncpg.PostgresError as error:
            raise psycopg.errors.lookup(error.sqlstate)(str(error)) from error
        except OSError as error:
            raise psycopg.OperationalError(str(error)) from error
        except asyncpg.InterfaceError as error:
            # also of a connection that another task uses
            kind = psycopg.ProgrammingError if self.usable else psycopg.OperationalError
            raise kind(str(error)) from error
        last = status.rpartition(" ")[2]  # such as UPDATE 3
        return Rows((), int(last) if last.isdecimal() else -1)

    @property
    def usable(self) -> bool:
        return not self.raw.is_closed()

    @property
    def alone(self) -> bool:
        return not self.raw.is_in_transaction()


@lru_cache(maxsize=1024)
def _has_rows(query: str) -> bool:
    words = _COMMENT.sub("", query).lower().split()
    return not words or words[0].strip(";") not in _COMMANDS or "returning" in words


def _asyncpg_session(raw: Any, loop: asyncio.AbstractEventLoop) -> AsyncpgSession:
    import asyncpg

    try:
        raw.is_in_transaction()
    except asyncpg.InterfaceError as error:
        raise InvalidArgument(f"conn= was given back to its pool: {error}") from None
    return AsyncpgSession(raw, loop)


def session_of(reached: Reached) -> AwaitedSession:
    """The session of a caller's connection."""
    assert reached.loop is not None
    if isinstance(reached.raw, psycopg.AsyncConnection):
        return PsycopgSession(reached.raw, reached.loop)
    if is_of(reached.raw, "asyncpg") and hasattr(reached.raw, "is_in_transaction"):
        return _asyncpg_session(reached.raw, reached.loop)
    raise InvalidArgument(
        "conn= must be a connection of psycopg or asyncpg to this store's database (or SQLAlchemy's "
        f"over one), not {full_name(reached.raw)}"
    )
