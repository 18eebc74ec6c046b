"""The HNSW index of a large collection: built in the background, used for large tenants."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext

from evervec.indexes.pgvector.building import IndexBuilder
from evervec.indexes.pgvector.table import SQL, PointsTable
from evervec.stores.postgres.connections import Connections, Session

_LOOK_AGAIN = 60.0
"""seconds for which the size of a tenant or collection is cached"""
_MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}


class Hnsw:
    """The HNSW indexes of one database; `rows`: the size from which one is built, 0: never."""

    def __init__(self, db: Connections, rows: int) -> None:
        self._db = db
        self._rows = rows
        self._builder = IndexBuilder(db, "evervec-hnsw")

    def serves(self, table: PointsTable, tenant: str) -> bool:
        """Whether the index exists, and the tenant is large enough for it."""
        if not self._rows:
            return False
        self._refresh(table)
        if not table.hnsw:
            return False
        counted, is_large = table.large.get(tenant, (0.0, False))
        if not counted or time.monotonic() - counted > _LOOK_AGAIN:
            wanted = (tenant, self._rows)
            with self._db.reading() as conn:
                (size,) = conn.execute(table.sql(SQL.tenant_size), wanted).fetchone()
            is_large = size >= self._rows
            table.large[tenant] = (time.monotonic(), is_large)
        return is_large

    def consider(self, table: PointsTable, conn: Session) -> None:
        """Build the index in the background once the collection is large."""
        if self._rows and self._refresh(table, conn) and _can_be_indexed(table):
            self._builder.start(lambda: self.build(table))

    def _refresh(self, table: PointsTable, conn: Session | None = None) -> bool:
        """Check whether the index exists, at most once per `_LOOK_AGAIN`; returns whether it
        should be built."""
        if time.monotonic() - table.looked < _LOOK_AGAIN:
            return False
        table.looked = time.monotonic()
        with reading(self._db, conn) as db:
            rows, valid = _state(db, table)
        table.hnsw = bool(valid)
        return rows >= self._rows and not valid

    def build(self, table: PointsTable) -> bool:
        """Build the index, see `IndexBuilder.build`."""
        operators = f"{table.type.partition('(')[0]}_cosine_ops"
        built = self._builder.build(
            f"{table.name}_hnsw",
            f"{table.name} using hnsw (vector {operators}) with (m = 16, ef_construction = 128)",
        )
        if built:
            table.hnsw, table.looked = True, time.monotonic()
        return built


def reading(db: Connections, conn: Session | None) -> AbstractContextManager[Session]:
    """The open transaction, or a connection of the pool: never one inside the other."""
    return db.reading() if conn is None else nullcontext(conn)


def _state(conn: Session, table: PointsTable) -> tuple[float, bool | None]:
    """The number of rows, roughly, and whether the index is valid; None: there is none."""
    wanted = (f"evervec.{table.name}", f"{table.name}_hnsw")
    rows, valid = conn.execute(SQL.hnsw_state, wanted).fetchone()
    return rows, valid


def _can_be_indexed(table: PointsTable) -> bool:
    kind, _, size = table.type.rstrip(")").partition("(")
    return int(size) <= _MOST_DIMENSIONS[kind]
