"""Maintenance of a DuckDB file."""

from __future__ import annotations

import duckdb

from evervec.stores.duckdb.leases import Leases
from evervec.stores.sql import care

_TABLES = "select table_name from duckdb_tables() where table_name like 'evervec\\_%' escape '\\'"


class Care(Leases, care.Care):
    """The part of the store that operators use."""

    def tend(self) -> None:
        self.db.checkpoint()

    def check(self) -> str | None:
        """Read every table once, which verifies the checksum of each block."""
        with self.db.reading() as conn:
            for (table,) in conn.execute(_TABLES).fetchall():
                try:
                    conn.execute(f"select bit_xor(hash(t)) from {table} as t").fetchall()
                except duckdb.Error as error:
                    return f"{table}: {error}"
        return None
