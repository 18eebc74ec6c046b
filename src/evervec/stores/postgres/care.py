"""Purging and reopening, and what a database needs from time to time."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from evervec.model import Job
from evervec.stores.base import Draft
from evervec.stores.postgres.engine import SQL, retried
from evervec.stores.postgres.leases import Leases
from evervec.stores.sql import care
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.records import Row, op_to_reopen

log = logging.getLogger("evervec")

OLD_TRANSACTION = 600.0
"""seconds that a transaction may be open before an alert tells of it"""


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            records = [row[0] for row in conn.execute(SQL.forgotten, (before, limit))]
            if records:  # a job may have come just before the lock; none can come now
                rows = conn.execute(SQL.still_without_job, (records,))
                records = [row[0] for row in rows]
                for (table,) in conn.execute(SQL.points_tables).fetchall():
                    conn.execute(f"delete from evervec.{table} where record = any ($1)", (records,))
                conn.execute(SQL.forget_removals, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone

    def _job(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        """A job that is about to be changed: nobody else changes it until then."""
        conn.execute(SQL.lock_job, (job_id,))
        return super()._job(conn, tenant, job_id)

    def tend(self) -> None:
        """Vacuum is the database's own affair; what keeps it from its work is told."""
        with self.db.reading() as conn:
            for pid, name, seconds in conn.execute(SQL.oldest_transactions, (OLD_TRANSACTION,)):
                log.error(
                    "[ALERT] a transaction has been open for %d s (process %d, %s): nothing that "
                    "is done since can be cleared away, and the database grows until it ends",
                    *(seconds, pid, name or "no name"),
                    extra={"pid": pid, "seconds": seconds},
                )

    def check(self) -> str | None:
        with self.db.reading() as conn:
            standby, schema, database, offered, vector = conn.execute(SQL.health).fetchone()
        name = self.db.name
        if standby:
            return f"{name} is a standby and cannot be written: give the primary's address"
        if not schema:
            return f"this user may not create tables in the schema evervec of {name}: GRANT it"
        if vector is None and offered is None:
            return f"{name} has no pgvector: install it on the server, or give another index"
        if vector is None and not database:
            return f"this user may not create the extension vector in {name}: have its owner do it"
        if vector is not None and _numbers(vector) < (0, 8):
            return (
                f"pgvector {vector} in {name} is older than 0.8, and finds too little where "
                "searches are filtered: ALTER EXTENSION vector UPDATE"
            )
        return None

    @retried
    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            conn.execute(SQL.lock_revealed, (list(records),))
            found = conn.execute(SQL.reopen, (list(records), version)).fetchall()
            numbers = self.take_numbers(conn, 2 * len(found)) if found else iter(())
            for record, tenant, state, boxed in found:
                row = Row("", record=record, draft=Draft("", "", b"", priority=priority))
                row.take(numbers, 1)
                op = op_to_reopen(state, boxed)
                self._put_jobs(conn, tenant, [version], now, [(row, op, None)])
            if forget and found:
                count = len(found)
                ledgers = ([row[0] for row in found], [version] * count, [1 << 62] * count)
                conn.execute(SQL.drop_ledger, ledgers)
        self.wake()
        return len(found)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
