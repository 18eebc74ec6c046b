"""An SQLite store within a transaction of the caller, for schema migrations."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evervec.settings import Settings
from evervec.stores.sql.store import SqlStore
from evervec.stores.sqlite.connections import Connections, join
from evervec.stores.sqlite.engine import Engine
from evervec.stores.sqlite.schema import upgrade
from evervec.stores.sqlite.store import SqliteStore


class JoinedConnections(Connections):
    """The one connection of the caller, for reads and writes."""

    def __init__(self, conn: Any, busy_seconds: float) -> None:
        self._conn = conn
        self._busy_seconds = busy_seconds
        self.path = None
        self.read_only = self._closed = False
        with join(conn) as joined:
            (_, _, file) = joined.execute("pragma database_list").fetchone()
        self.name = file or "memory:"

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        with self._explained(), join(self._conn) as joined:
            yield joined

    reading = snapshot  # type: ignore[assignment]

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[sqlite3.Connection]:
        with self.snapshot() as joined:
            yield joined

    def commits(self) -> None:
        return None

    def close(self) -> None:
        """Nothing to do: the connection is the caller's."""


class JoinedStore(SqliteStore):
    """Everything that it reads and writes, and its schema if that is new, is a part of the
    caller's transaction."""

    def __init__(self, conn: Any, settings: Settings) -> None:
        db = JoinedConnections(conn, settings.busy_seconds)
        upgrade(db)
        engine = Engine(db, settings.clock, settings.max_attempts)
        SqlStore.__init__(self, db.name, engine, settings)
