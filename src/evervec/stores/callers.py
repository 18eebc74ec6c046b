"""`conn=`: finds the driver's connection behind the object that a caller passes."""

from __future__ import annotations

from typing import Any


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
