"""`conn=`: from what a caller holds to the driver's own connection."""

from __future__ import annotations

from typing import Any


def driver_connection(conn: Any) -> Any:
    """The driver's connection behind a SQLAlchemy connection or session, or a Django
    connection; anything else as it is.

    None of these packages is imported: each is known by what it offers.
    """
    family = type(conn).__mro__[-2].__module__.partition(".")[0]
    if family == "sqlalchemy" or type(conn).__module__.startswith("sqlalchemy."):
        if callable(conn.connection):  # a session
            conn = conn.connection()
        if not conn.in_transaction():  # as before its own first statement, so that it commits
            conn.begin()
        return conn.connection.driver_connection
    if hasattr(conn, "ensure_connection") and hasattr(conn, "vendor"):  # Django's
        conn.ensure_connection()
        return conn.connection
    return conn
