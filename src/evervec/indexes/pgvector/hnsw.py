"""The HNSW index of a large collection: built in the background, used for large tenants.

A collection in partitions has one for each: smaller ones are built in less memory and time.
"""

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
        table.hnsw = valid == len(table.tables)
        return rows >= self._rows and not table.hnsw

    def build(self, table: PointsTable) -> bool:
        """Build the index, or those of all partitions, see `IndexBuilder.build`. Processes that
        do so at once share the partitions."""
        how = f"using hnsw (vector {table.type.partition('(')[0]}_cosine_ops)"
        how += " with (m = 16, ef_construction = 128)"
        built = [self._builder.build(f"{name}_hnsw", f"{name} {how}") for name in table.tables]
        if any(built):
            with self._db.reading() as conn:
                _, valid = _state(conn, table)
            table.hnsw, table.looked = valid == len(table.tables), time.monotonic()
        return any(built)


def reading(db: Connections, conn: Session | None) -> AbstractContextManager[Session]:
    """The open transaction, or a connection of the pool: never one inside the other."""
    return db.reading() if conn is None else nullcontext(conn)


def _state(conn: Session, table: PointsTable) -> tuple[float, int]:
    """The number of rows, roughly, and how many of its tables have a valid index."""
    rows, valid = conn.execute(SQL.hnsw_state, (table.tables,)).fetchone()
    return rows or 0.0, valid


def _can_be_indexed(table: PointsTable) -> bool:
    kind, _, size = table.type.rstrip(")").partition("(")
    return int(size) <= _MOST_DIMENSIONS[kind]
