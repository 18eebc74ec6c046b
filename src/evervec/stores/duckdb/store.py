"""The DuckDB store, composed of its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evervec.settings import Settings
from evervec.stores.duckdb.care import Care
from evervec.stores.duckdb.connections import Connections
from evervec.stores.duckdb.engine import SQL
from evervec.stores.duckdb.filters import Filter
from evervec.stores.duckdb.finding import Finding
from evervec.stores.duckdb.schema import upgrade
from evervec.stores.duckdb.sharing import Sharing
from evervec.stores.sql.asking import Asking
from evervec.stores.sql.audit import Audit
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.fleet import Fleet
from evervec.stores.sql.keys import Keys
from evervec.stores.sql.listing import Listing
from evervec.stores.sql.tenants import default_limits
from evervec.stores.sql.versions import Versions


class DuckdbStore(Care, Listing, Finding, Sharing, Versions, Fleet, Keys, Asking, Audit):
    """Records, jobs and ledger in one DuckDB file, for one process at a time."""

    poll_seconds = 0.1
    reads_at_once = False
    filter = Filter

    def __init__(self, path: Path, settings: Settings) -> None:
        db = Connections(path, settings.busy_seconds)
        try:
            super().__init__(db, settings.clock, settings.max_attempts)
            self.default_limits = default_limits(settings)
            self.url = db.url
            self.folder = path.absolute().parent
            upgrade(db)
        except BaseException:
            db.close()
            raise

    def connection(self) -> Any:
        return self.db.connection()

    def _drop_ledger(self, conn: Connection, version: int, limit: int) -> int:
        rows = conn.execute(SQL.version_records, (version, limit)).fetchall()
        with self.counting(conn, [row[0] for row in rows]):
            return super()._drop_ledger(conn, version, limit)

    def close(self) -> None:
        self.db.close()
        self.stems.close()
