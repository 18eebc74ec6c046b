"""Usage of tenants, counted by triggers, except for new records."""

from __future__ import annotations

from evervec.stores.sql import tenants
from evervec.stores.sql.engine import Connection
from evervec.stores.sqlite.engine import SQL


class Tenants(tenants.Tenants):
    """The part of the store that keeps tenants' limits and usage."""

    def count_new(self, conn: Connection, tenant: str, kind: str, records: int, size: int) -> None:
        conn.execute(SQL.count_new, (tenant, kind, records, size))
