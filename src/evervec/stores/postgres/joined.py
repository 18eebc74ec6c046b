"""A PostgreSQL store within a transaction of the caller, for schema migrations."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from evervec.settings import Settings
from evervec.stores.postgres.connections import Connections, join
from evervec.stores.postgres.engine import Engine
from evervec.stores.postgres.replicas import Replicas
from evervec.stores.postgres.schema import upgrade
from evervec.stores.postgres.store import PostgresStore
from evervec.stores.sql.retries import CallersConflict, Conflict
from evervec.stores.sql.store import SqlStore


class JoinedConnections(Connections):
    """The one connection of the caller, for reads and writes."""

    def __init__(self, conn: Any, settings: Settings) -> None:
        self._conn = conn
        self._secret = ""
        self._busy_ms = int(settings.busy_seconds * 1000)
        self._wait = settings.connect_seconds
        with join(conn) as joined:
            (database,) = joined.execute("select current_database()").fetchone()
        self.name = f"postgresql:///{database}"

    @contextmanager
    def reading(self) -> Iterator[Any]:
        try:
            with self.explained(), join(self._conn) as joined:
                yield joined
        except Conflict as error:  # only the caller can retry the whole transaction
            raise CallersConflict(str(error)) from error

    snapshot = reading
    aside = reading  # another transaction would not see the tables that this one creates

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[Any]:
        with self.reading() as joined:
            yield joined

    def close(self) -> None:
        """Nothing to do: the connection is the caller's."""


class JoinedStore(PostgresStore):
    """Everything that it reads and writes, and its schema if that is new, is a part of the
    caller's transaction."""

    def __init__(self, conn: Any, settings: Settings) -> None:
        db = JoinedConnections(conn, settings)
        upgrade(db, settings.postgres_partitions)
        engine = Engine(db, settings.clock, settings.max_attempts, listen=False)
        SqlStore.__init__(self, db.name, engine, settings)
        self._replicas = Replicas(db, dataclasses.replace(settings, postgres_replicas=""))
