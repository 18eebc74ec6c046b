"""The DuckDB store, composed of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from evervec.settings import Settings
from evervec.stores.duckdb.changes import Changes, JobWriter, Tenants
from evervec.stores.duckdb.connections import Connections
from evervec.stores.duckdb.engine import Engine
from evervec.stores.duckdb.leases import Leases
from evervec.stores.duckdb.records import Records
from evervec.stores.duckdb.schema import SCHEMA, upgrade
from evervec.stores.sql.store import Parts, SqlStore

_TABLES = "select table_name from duckdb_tables() where table_name like 'evervec\\_%' escape '\\'"


class DuckdbStore(SqlStore):
    """Records, jobs and ledger in one DuckDB file, for one process at a time."""

    schema = SCHEMA
    parts = Parts(JobWriter, Changes, Records, Leases, tenants=Tenants)

    def __init__(self, path: Path, settings: Settings) -> None:
        db = Connections(path, settings.busy_seconds)
        self._engine = Engine(db, settings.clock, settings.max_attempts)
        super().__init__(db.url, self._engine, settings)
        self.folder = path.absolute().parent
        try:
            upgrade(db)
        except BaseException:
            self.close()
            raise

    def connection(self) -> Any:
        return self.db.connection()

    def maintain(self) -> None:
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
