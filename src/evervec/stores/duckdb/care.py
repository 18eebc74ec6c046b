"""Purging, and what a DuckDB file needs from time to time."""

from __future__ import annotations

import duckdb

from evervec.stores.duckdb.engine import SQL
from evervec.stores.duckdb.leases import Leases
from evervec.stores.sql import care

_TABLES = "select table_name from duckdb_tables() where table_name like 'evervec\\_%' escape '\\'"


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            removals = conn.execute(SQL.purge_removed, (before, limit)).fetchall()
            if removals:
                conn.execute(SQL.removals_purged, max(removals))
                gone += len(removals)
            records = [row[0] for row in conn.execute(SQL.forgotten, (before, limit))]
            if records:
                conn.execute(SQL.forget_points, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone

    def tend(self) -> None:
        self.db.checkpoint()

    def check(self) -> str | None:
        """Read everything once: each block of the file has a checksum."""
        with self.db.reading() as conn:
            for (table,) in conn.execute(_TABLES).fetchall():
                try:
                    conn.execute(f"select bit_xor(hash(t)) from {table} as t").fetchall()
                except duckdb.Error as error:
                    return f"{table}: {error}"
        return None
