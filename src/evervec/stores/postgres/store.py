"""The PostgreSQL store, composed of its parts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TypeVar

from evervec.settings import Settings
from evervec.stores.postgres.changes import Changes, JobWriter, Tenants
from evervec.stores.postgres.connections import Connections
from evervec.stores.postgres.engine import SQL, Engine
from evervec.stores.postgres.jobs import Jobs
from evervec.stores.postgres.leases import Leases
from evervec.stores.postgres.partitions import Partitioner, Progress
from evervec.stores.postgres.records import Records
from evervec.stores.postgres.replicas import Replicas
from evervec.stores.postgres.schema import SCHEMA, upgrade
from evervec.stores.postgres.versions import Versions
from evervec.stores.sql.store import Parts, SqlStore

T = TypeVar("T")


_MOST_LOCKS = 26
"""that a transaction takes for each partition: of four tables and their indexes"""
_LOCKS = 16
"""for each partition; the server shares what connections do not use"""


class PostgresStore(SqlStore):
    """Records, jobs and ledger in the schema `evervec` of a database."""

    schema = SCHEMA
    parts = Parts(JobWriter, Changes, Records, Leases, Jobs, Versions, Tenants)
    poll_seconds = 1.0
    is_local = False
    engine: Engine

    def __init__(self, url: str, settings: Settings) -> None:
        db = Connections(url, settings)
        engine = Engine(db, settings.clock, settings.max_attempts, settings.listen)
        super().__init__(db.name, engine, settings)
        self._settings = settings
        self._replicas = Replicas(db, settings)
        self._first_seen: Mapping[tuple[str, str], float] = {}
        """when each transaction was first seen, for transactions whose start time is hidden"""
        try:
            upgrade(db, settings.postgres_partitions)
        except BaseException:
            db.close()
            raise

    def maintain(self) -> None:
        assert isinstance(self.records, Records)
        self.records.maintain()

    def searching(self, search: Callable[[], T], *, fresh: bool) -> T:
        return self._replicas.search(search, fresh=fresh)

    def partition(self, parts: int, progress: Progress) -> list[str]:
        partitioner = Partitioner(self.engine.db, self._settings.hnsw_memory_mb)
        return partitioner.move(parts, progress) if parts else partitioner.undo()

    def troubles(self, seconds: float) -> list[str]:
        """Transactions that have blocked vacuum for longer than `seconds`."""
        with self.db.reading() as conn:
            rows = conn.execute(SQL.horizon_holders).fetchall()
        now = time.monotonic()
        self._first_seen = {
            (who, xid): self._first_seen.get((who, xid), now) for who, _, xid in rows
        }
        return [
            f"a transaction has been open for {lasts:.0f} s ({who}): it blocks vacuum, and the "
            "database grows until it ends"
            for who, known, xid in rows
            if (lasts := now - self._first_seen[who, xid] if known is None else known) >= seconds
        ]

    def check(self) -> str | None:
        with self.db.reading() as conn:
            standby, schema, database, offered, vector, parts, locks = conn.execute(
                SQL.health
            ).fetchone()
        name = self.url
        if standby:
            return f"{name} is a standby and read-only: give the primary's address"
        if not schema:
            return f"this user may not create tables in the schema evervec of {name}: GRANT it"
        if vector is None and offered is None:
            return f"{name} has no pgvector: install it on the server, or use another index"
        if vector is None and not database:
            return f"this user may not create the extension vector in {name}: its owner must do it"
        if vector is not None and _numbers(vector) < (0, 8):
            return (
                f"pgvector {vector} in {name} is older than 0.8, so filtered searches return too "
                "few hits: ALTER EXTENSION vector UPDATE"
            )
        if locks < _LOCKS * parts:
            return (
                f"with {parts} partitions, transactions take up to {_MOST_LOCKS * parts} locks each: set "
                f"max_locks_per_transaction of {name} to at least {_LOCKS * parts} (it is {locks})"
            )
        return None

    def close(self) -> None:
        if self.engine.listening is not None:
            self.engine.listening.close()
        self._replicas.close()
        super().close()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
