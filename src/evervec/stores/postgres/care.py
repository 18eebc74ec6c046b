"""Purging, and what a database needs from time to time."""

from __future__ import annotations

import logging

from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.leases import Leases
from evervec.stores.sql import care

log = logging.getLogger("evervec")

OLD_TRANSACTION = 600.0
"""seconds that a transaction may be open before an alert tells of it"""


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            records = [row[0] for row in conn.execute(SQL.forgotten, (before, limit))]
            if records:
                for (table,) in conn.execute(SQL.points_tables).fetchall():
                    conn.execute(f"delete from evervec.{table} where record = any ($1)", (records,))
                conn.execute(SQL.forget_removals, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone

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
        return None
