"""What the engines' connections share: a check that a store can still be used by this process, and
the driver's connection behind the object that a caller passes as `conn=`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from evervec.errors import InvalidArgument, StoreClosed, StoreError

if TYPE_CHECKING:
    import asyncio


def closed(name: str) -> StoreClosed:
    return StoreClosed(f"the store {name} is closed: open it again with evervec.open")


def check_usable(name: str, is_closed: bool, pid: int) -> None:
    """Raise an error if the store is closed, or was opened in process `pid` before a fork."""
    if is_closed:
        raise closed(name)
    if pid != os.getpid():
        raise StoreError(
            f"the store {name} was opened before this process was forked; connections do not "
            "survive that: call evervec.open in the child process"
        )


class Reached:
    """The driver's connection behind one for asyncio that a caller passed as `conn=`. `loop`: where
    its coroutines run; None for a connection that this thread uses directly."""

    __slots__ = ("loop", "raw")

    def __init__(self, raw: Any, loop: asyncio.AbstractEventLoop | None) -> None:
        self.raw = raw
        self.loop = loop


def full_name(conn: Any) -> str:
    """The class of a caller's connection, for errors."""
    raw = conn.raw if isinstance(conn, Reached) else conn
    return f"{type(raw).__module__}.{type(raw).__qualname__}"


def is_of(conn: Any, package: str) -> bool:
    """Whether a connection is an object of a package, or of a subclass of one."""
    return any(f"{cls.__module__}.".startswith(f"{package}.") for cls in type(conn).__mro__)


def driver_connection(conn: Any) -> Any:
    """The driver's connection behind a SQLAlchemy connection or session, or a Django
    connection; any other object is returned unchanged.

    Neither package is imported: objects are recognised by their module or attributes.
    """
    if isinstance(conn, Reached):
        return conn if conn.loop is not None else conn.raw
    if is_of(conn, "sqlalchemy.ext.asyncio") or (
        hasattr(conn, "__aenter__") and not hasattr(conn, "__enter__")
    ):
        raise InvalidArgument(
            f"conn= is a connection for asyncio ({full_name(conn)}): open the store with "
            "evervec.aopen to use it"
        )
    if is_of(conn, "sqlalchemy"):
        if callable(conn.connection):  # a session
            conn = conn.connection()
        if not conn.in_transaction():  # begin as SQLAlchemy would, so that its commit() works
            conn.begin()
        return conn.connection.driver_connection
    if hasattr(conn, "ensure_connection") and hasattr(conn, "vendor"):  # Django's
        conn.ensure_connection()
        return conn.connection
    return conn
