"""The HNSW index of a large collection: built in the background, used for large tenants."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager, nullcontext

import psycopg

from evervec.errors import EvervecError
from evervec.indexes.pgvector.table import SQL, PointsTable
from evervec.stores.postgres.connections import Connections, Session

log = logging.getLogger("evervec")

_LOOK_AGAIN = 60.0
"""seconds for which the size of a tenant or collection is cached"""
_MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}


class Hnsw:
    """The HNSW indexes of one database; `rows`: the size from which one is built, 0: never."""

    def __init__(self, db: Connections, rows: int) -> None:
        self._db = db
        self._rows = rows
        self._builder: threading.Thread | None = None

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
        if not self._rows or not self._refresh(table, conn) or not _can_be_indexed(table):
            return
        if self._builder is None or not self._builder.is_alive():
            self._builder = threading.Thread(
                target=self._build_quietly, args=(table,), name="evervec-hnsw", daemon=True
            )
            self._builder.start()

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

    def _build_quietly(self, table: PointsTable) -> None:
        try:
            self.build(table)
        except (EvervecError, psycopg.Error) as error:
            log.warning("building the HNSW index of %s is postponed: %s", table.name, error)

    def build(self, table: PointsTable) -> bool:
        """Build the index while the table is read and written; False when it exists, or another
        process is building it. The remains of a killed build are dropped and built again."""
        with self._db.explained(), self._db.dedicated() as raw:
            conn = Session(raw)
            # an advisory lock ends with the connection, and so also when its process is killed
            (taken,) = conn.execute(SQL.take_building, (table.version,)).fetchone()
            _, valid = _state(conn, table)
            if not taken or valid:
                return False
            name = f"{table.name}_hnsw"
            operators = f"{table.type.partition('(')[0]}_cosine_ops"
            conn.execute(f"drop index concurrently if exists evervec.{name}")
            conn.execute(
                f"create index concurrently {name} on evervec.{table.name} "
                f"using hnsw (vector {operators}) with (m = 16, ef_construction = 128)"
            )
        table.hnsw, table.looked = True, time.monotonic()
        log.info("built the HNSW index of %s", table.name)
        return True


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
