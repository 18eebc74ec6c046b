"""Usage of tenants, logged by triggers so that concurrent writers do not wait for each other."""

from __future__ import annotations

from evervec.stores.sql import tenants
from evervec.stores.sql.engine import Connection


class Tenants(tenants.Tenants):
    """The part of the store that keeps tenants' limits and usage."""

    def lock_tenant(self, conn: Connection, tenant: str) -> None:
        conn.execute(self.sql.lock_tenant, (tenant,))

    def fold_usage(self, limit: int = 10_000) -> int:
        if not self.read(self.sql.any_usage_changes):
            return 0
        with self.db.writing(durable=False) as conn:
            (folded,) = conn.execute(self.sql.fold_usage, (limit,)).fetchone()
        return int(folded)
