"""The HNSW index of a large collection: built in the background, used for large tenants.

A collection in partitions has one for each: smaller ones are built in less memory and time, and
several at once.
"""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from evervec.indexes.pgvector.index_builder import IndexBuilder
from evervec.indexes.pgvector.table import SQL, PointsTable
from evervec.model.phrases import duration
from evervec.model.reports import IndexBuild
from evervec.runtime.threads import Pool
from evervec.settings import Settings
from evervec.stores.postgres.connections import Connections, Session

log = logging.getLogger("evervec")

_LOOK_AGAIN = 60.0
"""seconds for which the size of a tenant or collection is cached"""
_MOST_DIMENSIONS = {"vector": 2000, "halfvec": 4000}
_BYTES = {"vector": 4, "halfvec": 2}
"""of one dimension"""
_NODE_BYTES = 1024
"""of one vector's place in the graph with m = 16, somewhat more than it takes"""
_PROCESS_KB = 32 * 1024
"""PostgreSQL starts only as many helpers of a build as leave each process so much memory"""
_LEAST_KB = 1024
"""PostgreSQL accepts no less on all its versions"""


class _Plan(NamedTuple):
    """How the indexes of a table are built."""

    at_once: int
    memory_kb: int
    """for each; 0: as the server is set"""
    workers: int
    """that help with each"""


class Hnsw:
    """The HNSW indexes of one database."""

    def __init__(self, db: Connections, settings: Settings) -> None:
        self._db = db
        self._rows = settings.hnsw_rows
        """the size from which one is built; 0: never"""
        self._most_kb = settings.hnsw_memory_mb * 1024
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

    def maintain(self, tables: Mapping[int, PointsTable]) -> None:
        """Build the missing indexes of large collections in the background: a collection that is
        not written any more gets its index here. Log how far builds have come."""
        if not self._rows:
            return
        for build in self.builds(tables):
            left = build.seconds_left
            text = "" if left is None else f", about {duration(left)} left"
            log.info("building the index of %s: %.0f %%%s", build.table, 100 * build.done, text)
        for table in tables.values():
            table.looked = -math.inf
        missing = [t for t in tables.values() if self._refresh(t) and _can_be_indexed(t)]
        if missing:
            self._builder.start(lambda: [self.build(table) for table in missing])

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
        how = f"using hnsw (vector {_kind_of(table)}_cosine_ops)"
        how += " with (m = 16, ef_construction = 128)"
        plan = self._plan(table)

        def build(name: str) -> bool:
            return self._builder.build(
                f"{name}_hnsw", f"{name} {how}", memory_kb=plan.memory_kb, workers=plan.workers
            )

        built = Pool(plan.at_once).map(build, table.tables)
        if any(built):
            with self._db.reading() as conn:
                _, valid = _state(conn, table)
            table.large.clear()
            table.hnsw, table.looked = valid == len(table.tables), time.monotonic()
        return any(built)

    def _plan(self, table: PointsTable) -> _Plan:
        """As many processes in all as the server would use for one index. A build in less memory
        than its graph needs takes many times as long."""
        with self._db.reading() as conn:
            rows, _ = _state(conn, table)
            own_kb, helpers = conn.execute(SQL.means).fetchone()
        at_once = min(len(table.tables), 1 + helpers)
        size = _dimensions(table) * _BYTES[_kind_of(table)] + _NODE_BYTES
        workers = (1 + helpers) // at_once - 1
        needed_kb = int(1.2 * size * rows / len(table.tables)) // 1024
        if workers:
            needed_kb = max(needed_kb, _PROCESS_KB * (1 + workers))
        memory_kb = min(needed_kb, max(self._most_kb, own_kb) // at_once)
        return _Plan(at_once, max(memory_kb, _LEAST_KB) if rows else 0, workers)

    def builds(self, tables: Mapping[int, PointsTable]) -> list[IndexBuild]:
        """The builds that are under way, of any process."""
        running: dict[int, list[tuple[float, float | None]]] = defaultdict(list)
        found: list[IndexBuild] = []
        with self._db.reading() as conn:
            for name, done, seconds in conn.execute(SQL.builds).fetchall():
                running[_version_of(name)].append((done, seconds))
            for version, parts in running.items():
                if (table := tables.get(version)) is not None:
                    _, valid = _state(conn, table)
                    left = len(table.tables) - valid - sum(done for done, _ in parts)
                    found.append(
                        IndexBuild(
                            table.kind or "",
                            f"evervec.{table.name}",
                            1 - left / len(table.tables),
                            _seconds_left(left, parts),
                        )
                    )
        return found


def _seconds_left(left: float, running: Iterable[tuple[float, float | None]]) -> float | None:
    """For so many indexes, at the pace of those that are being built."""
    pace = sum(done / seconds for done, seconds in running if seconds)
    return left / pace if pace else None


def reading(db: Connections, conn: Session | None) -> AbstractContextManager[Session]:
    """The open transaction, or a connection of the pool: never one inside the other."""
    return db.reading() if conn is None else nullcontext(conn)


def _state(conn: Session, table: PointsTable) -> tuple[float, int]:
    """The number of rows, roughly, and how many of its tables have a valid index."""
    rows, valid = conn.execute(SQL.hnsw_state, (table.tables, table.version)).fetchone()
    return float(rows or 0), valid


def _version_of(name: str) -> int:
    """The version of a table or of its partition."""
    return int(name.split("_")[1])


def _kind_of(table: PointsTable) -> str:
    return table.type.partition("(")[0]


def _dimensions(table: PointsTable) -> int:
    return int(table.type.rstrip(")").partition("(")[2])


def _can_be_indexed(table: PointsTable) -> bool:
    return _dimensions(table) <= _MOST_DIMENSIONS[_kind_of(table)]
