"""Usage of tenants, counted in code: DuckDB has no triggers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from evervec.stores.sql import tenants
from evervec.stores.sql.engine import Connection

_NOTHING = (0, 0, 0)


class Tenants(tenants.Tenants):
    """The part of the store that keeps tenants' limits and usage."""

    def check_kind(self, conn: Connection, tenant: str, kind: str) -> None:
        # the caller's transaction must not begin before `targets`
        with self.db.reading() as other:
            super().check_kind(other, tenant, kind)

    @contextmanager
    def counting(self, conn: Connection, records: Collection[int]) -> Iterator[None]:
        """Reads the usage of the records before and after the change."""
        if not records:
            yield
            return
        before = self._counted(conn, records)
        yield
        after = self._counted(conn, records)
        for place in before.keys() | after.keys():
            was, now = before.get(place, _NOTHING), after.get(place, _NOTHING)
            self._count(conn, *place, *(n - w for n, w in zip(now, was, strict=True)))

    def count_new(self, conn: Connection, tenant: str, kind: str, records: int, size: int) -> None:
        self._count(conn, tenant, kind, None, records, size, 0)

    def _counted(
        self, conn: Connection, records: Collection[int]
    ) -> dict[tuple[str, str | None, int | None], tuple[int, ...]]:
        """Records, bytes and chunks by tenant and kind, or tenant and version."""
        rows = conn.execute(self.sql.held_usage, (list(records),)).fetchall()
        return {
            (tenant, kind, version): (int(count), int(size), int(chunks))
            for tenant, kind, version, count, size, chunks in rows
        }

    def _count(
        self,
        conn: Connection,
        tenant: str,
        kind: str | None,
        version: int | None,
        records: int,
        size: int,
        chunks: int,
    ) -> None:
        if version is None and (records or size):
            more = (tenant, kind, records, size)
            if conn.execute(self.sql.add_usage, more).rowcount == 0:
                conn.execute(self.sql.new_usage, more)
        elif chunks:
            some = (tenant, version, chunks)
            if conn.execute(self.sql.add_chunks, some).rowcount == 0:
                conn.execute(self.sql.new_chunks, some)
