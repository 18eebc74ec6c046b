"""The caller's own transaction, of a synchronous or an asynchronous driver, for calls with `conn=`.

No package is imported: connections are recognised by their modules.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from evervec.errors import InvalidArgument
from evervec.runtime.threads import submit
from evervec.stores.sql.connections import Reached, full_name, is_of

T = TypeVar("T")


class CallersConnection:
    """A connection that was passed as `conn=`; `inner` is what the store gets."""

    def __init__(self, conn: Any) -> None:
        if is_of(conn, "sqlalchemy") and hasattr(conn, "registry"):
            conn = conn()  # the session of this task or thread, not that of another
        self._conn = conn
        self.inner: Any = Reached(None, None) if is_for_asyncio(conn) else conn

    async def run(self, do: Callable[[], T]) -> T:
        """Run a call of the store in a thread: that of the connection if it has one, otherwise a
        new one. The pool's threads may all wait for locks that the caller's transaction holds."""
        work = partial(contextvars.copy_context().run, do)
        if not isinstance(self.inner, Reached):
            return await asyncio.wrap_future(submit("evervec-conn", work))
        raw = await _driver_connection(self._conn)
        if is_of(raw, "aiosqlite"):
            self.inner.raw = getattr(raw, "_connection", None)
            if self.inner.raw is None:
                raise InvalidArgument("conn= is an aiosqlite connection that is not open: open it")
            made: T = await raw._execute(work)  # in the thread of the connection
            return made
        self.inner.raw, self.inner.loop = raw, asyncio.get_running_loop()
        return await asyncio.wrap_future(submit("evervec-conn", work))


def is_for_asyncio(conn: Any) -> bool:
    if any(is_of(conn, package) for package in ("sqlalchemy.ext.asyncio", "asyncpg", "aiosqlite")):
        return True
    return inspect.iscoroutinefunction(getattr(type(conn), "commit", None))


async def _driver_connection(conn: Any) -> Any:
    """The driver's connection behind one of SQLAlchemy, in a transaction that SQLAlchemy knows
    of."""
    if not is_of(conn, "sqlalchemy.ext.asyncio"):
        return conn
    if not hasattr(conn, "get_raw_connection"):
        if not hasattr(conn, "connection"):
            raise InvalidArgument(f"conn= is not a connection or session, but {full_name(conn)}")
        conn = await conn.connection()
    if not conn.in_transaction():
        await conn.begin()
    raw = (await conn.get_raw_connection()).driver_connection
    if is_of(raw, "asyncpg") and not raw.is_in_transaction():  # begun by the first statement
        await conn.exec_driver_sql("select 1")
    return raw
