"""What the engines' connections share: a check that a store can still be used by this process, and
the driver's connection behind the object that a caller passes as `conn=`."""

from __future__ import annotations

import os
from typing import Any

from evervec.errors import StoreClosed, StoreError


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


def driver_connection(conn: Any) -> Any:
    """The driver's connection behind a SQLAlchemy connection or session, or a Django
    connection; any other object is returned unchanged.

    Neither package is imported: objects are recognised by their module or attributes.
    """
    family = type(conn).__mro__[-2].__module__.partition(".")[0]
    if family == "sqlalchemy" or type(conn).__module__.startswith("sqlalchemy."):
        if callable(conn.connection):  # a session
            conn = conn.connection()
        if not conn.in_transaction():  # begin as SQLAlchemy would, so that its commit() works
            conn.begin()
        return conn.connection.driver_connection
    if hasattr(conn, "ensure_connection") and hasattr(conn, "vendor"):  # Django's
        conn.ensure_connection()
        return conn.connection
    return conn
