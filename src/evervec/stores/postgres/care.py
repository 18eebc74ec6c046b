"""Purging, and checks of the database."""

from __future__ import annotations

import time
from collections.abc import Mapping

from evervec.model.jobs import Job
from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.leases import Leases
from evervec.stores.sql import care
from evervec.stores.sql.engine import Connection


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    _first_seen: Mapping[tuple[str, str], float] = {}
    """when each transaction was first seen, for transactions whose start time is hidden"""

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            records = [row[0] for row in conn.execute(SQL.forgotten, (before, limit))]
            if records:  # a job may have been added just before the lock, but not after it
                rows = conn.execute(SQL.still_without_job, (records,))
                records = [row[0] for row in rows]
                for (table,) in conn.execute(SQL.points_tables).fetchall():
                    conn.execute(f"delete from evervec.{table} where record = any ($1)", (records,))
                conn.execute(SQL.forget_removals, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone

    def _job(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        """Lock a job that is about to be changed, so that no other transaction changes it."""
        conn.execute(SQL.lock_job, (job_id,))
        conn.execute(SQL.lock_place, (job_id,))
        return super()._job(conn, tenant, job_id)

    def tend(self) -> None:
        """Does nothing: PostgreSQL runs vacuum itself."""

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
            standby, schema, database, offered, vector = conn.execute(SQL.health).fetchone()
        name = self.db.name
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
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
