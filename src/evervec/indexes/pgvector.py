"""The PostgreSQL store's own index: vectors in the same database, with the extension pgvector.

Each collection has its own table. Points are written in the transaction that finishes their job,
whose row is locked, so no other transaction writes the same record; a change outside a job locks
out other writers. Small tenants are searched exactly. For a large collection an HNSW index is built
in the background, and serves tenants that are themselves large.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg

from evervec.errors import EvervecError, IndexUnavailable, StoreError
from evervec.indexes.base import Held, Match, Matches, Query, Stray
from evervec.model.records import Change, ModelSpec
from evervec.settings import Settings
from evervec.stores.named import Queries
from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.postgres.filters import Filter
from evervec.stores.postgres.packing import Packed
from evervec.stores.sql.batches import columns
from evervec.stores.values import Applied, Collection

if TYPE_CHECKING:
    from numpy.typing import NDArray

log = logging.getLogger("evervec")

SQL = Queries.read("evervec.indexes", "pgvector.sql")

_LOOK_AGAIN = 60.0
"""seconds for which the size of a tenant or collection is cached"""
_PAGE_DIMENSIONS = 1900
"""up to this size a row with its vector fits into a page"""
_MOST_HNSW = {"vector": 2000, "halfvec": 4000}


def _table_name(version: int) -> str:
    return f"points_{version}"


class _Table:
    """The points of one collection."""

    def __init__(self, version: int, type: str) -> None:
        self.version = version
        self.type = type
        self.name = _table_name(version)
        self.hnsw = False
        self.looked = 0.0
        self.large: dict[str, tuple[float, bool]] = {}

    def sql(self, query: str, **parts: str) -> str:
        query = query.replace("{points}", f"evervec.{self.name}").replace("{name}", self.name)
        query = query.replace("{type}", self.type)
        for part, text in parts.items():
            query = query.replace("{" + part + "}", text)
        return query


class PgvectorIndex:
    """Vectors in the store's own database; `apply` joins the store's transaction."""

    shares_store = True

    def __init__(self, db: Connections, settings: Settings) -> None:
        self.url = db.name
        self._db = db
        self._hnsw_rows = settings.hnsw_rows
        self._kind = "halfvec" if settings.pgvector_half else "vector"
        self._tables: dict[int, _Table] = {}
        self._element = 0
        self._making = threading.Lock()
        self._builder: threading.Thread | None = None

    # writing
    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        applied = Applied()
        by_version: dict[int, list[Change]] = defaultdict(list)
        for change in changes:
            by_version[change.version].append(change)
        tables = {
            version: self._table(
                version, next((len(p.vector) for c in group for p in c.points), 0), conn
            )
            for version, group in sorted(by_version.items())
        }
        alone = conn is None
        context = self._db.writing(durable=True) if alone else nullcontext(conn)
        with self._handling_dropped_tables(), context as db:
            db.execute(SQL.shut_out_writers if alone else SQL.join_writers)
            for version, table in tables.items():
                applied.add(self._apply(db, version, table, by_version[version], guarded=alone))
        return applied

    @contextmanager
    def _handling_dropped_tables(self) -> Iterator[None]:
        """Forget the known tables if one was dropped by others; the next write creates it again."""
        try:
            yield
        except (psycopg.errors.UndefinedTable, StoreError) as error:
            if not isinstance(error.__cause__ or error, psycopg.errors.UndefinedTable):
                raise
            self._tables = {}
            raise IndexUnavailable(
                f"a table of vectors is missing in {self.url}: run `evervec verify --repair`"
            ) from error

    def _apply(
        self,
        db: Session,
        version: int,
        table: _Table | None,
        changes: list[Change],
        *,
        guarded: bool,
    ) -> Applied:
        """`guarded`: the caller has not checked that the changes are the latest."""
        applied = Applied()
        records = [c.record for c in changes]
        latest = dict(db.execute(SQL.removed, (version, records)).fetchall())
        present: dict[int, set[bytes]] = defaultdict(set)
        if table is not None:
            for record, hash, seq in db.execute(table.sql(SQL.present), (records,)):
                present[record].add(hash)
                latest[record] = max(latest.get(record, seq), seq)
        gone: list[tuple[Any, ...]] = []
        kept: list[tuple[Any, ...]] = []
        new: list[tuple[Any, ...]] = []
        removed: list[tuple[int, int]] = []
        vectors = []
        for c in changes:
            if guarded and latest.get(c.record, c.seq) > c.seq:  # a newer write or removal exists
                applied.newer[version, c.record] = latest[c.record]
                continue
            there = present[c.record]
            if c.kept and not c.kept.keys() <= there:
                applied.missing.add((version, c.record))
            gone += [(c.record, h) for h in there if h not in c.kept]
            kept += [(c.record, h, c.seq, place) for h, place in c.kept.items() if h in there]
            new += [(c.tenant, c.record, p.hash, c.seq, p.position) for p in c.points]
            vectors += [p.vector for p in c.points]
            if not c.points and not c.kept:
                removed.append((c.record, c.seq))
        if table is not None:
            if gone:
                db.execute(table.sql(SQL.delete_points), columns(gone))
            if kept:
                db.execute(table.sql(SQL.keep_points), columns(kept))
            if new:
                packed = pack_vectors(vectors, self._element)
                db.execute(table.sql(SQL.insert_points), [*columns(new), packed])
        if removed:
            db.execute(SQL.put_removals, (version, *columns(sorted(removed))))
        if table is not None and new:
            self._consider(table, db)
        return applied

    def table(self, collection: Collection) -> str:
        return f"evervec.{_table_name(collection.version)}"

    def _table(self, version: int, dimensions: int, conn: Session | None = None) -> _Table | None:
        """The table of a collection, created in its own transaction when the first vectors come;
        None before that."""
        table = self._tables.get(version)
        if table is None:
            self._look(conn)
            table = self._tables.get(version)
        if table is None and dimensions:
            table = _Table(version, f"{self._kind}({dimensions})")
            with self._making:
                self._make(table, dimensions)
                self._look(conn)
            return self._tables.get(version, table)
        return table

    def _look(self, conn: Session | None = None) -> None:
        """Read which tables exist."""
        with self._reading(conn) as db:
            found = db.execute(SQL.tables).fetchall()
            self._tables = {v: self._tables.get(v) or _Table(v, type) for v, type in found}
            if self._tables and not self._element:
                self._element = db.execute(SQL.element_type).fetchone()[0]

    def _reading(self, conn: Session | None) -> AbstractContextManager[Session]:
        """The open transaction, or a connection of the pool: never one inside the other."""
        return self._db.reading() if conn is None else nullcontext(conn)

    def _make(self, table: _Table, dimensions: int) -> None:
        try:
            with self._db.aside() as conn:
                conn.execute("select pg_advisory_xact_lock(1702260081)")
                conn.execute(SQL.extension)
                conn.execute(table.sql(SQL.create_table))
                if dimensions <= _PAGE_DIMENSIONS:
                    conn.execute(table.sql(SQL.store_inline))
                conn.execute(table.sql(SQL.create_tenant_index))
        except EvervecError as error:
            cause = error.__cause__
            if isinstance(cause, (psycopg.errors.FeatureNotSupported, psycopg.errors.UndefinedFile,
                                  psycopg.errors.InsufficientPrivilege)):  # fmt: skip
                raise IndexUnavailable(
                    f"pgvector is not available in {self.url}: install it on the server, then run "
                    "CREATE EXTENSION vector as the database's owner, or use another index "
                    f"({cause})"
                ) from error
            raise

    # searching
    def refuses(self, kind: str, spec: ModelSpec) -> str | None:
        return None  # points of all sizes can be stored together

    def search(self, query: Query) -> Matches:
        table = self._table(query.version, 0)
        if table is None:
            return Matches()
        wanted = query.chunks
        while True:
            with self._handling_dropped_tables():
                rows = self._nearest(table, query, wanted)
            found = Matches.of((Match(*row) for row in rows), query.limit)
            if len(found) >= query.limit or len(rows) < wanted:
                return found
            wanted *= 4

    def _nearest(self, table: _Table, query: Query, wanted: int) -> list[tuple[int, bytes, float]]:
        given = Filter(query.conditions, 3)
        clause = SQL.filter.replace("{filter}", given.clause) if query.conditions else ""
        by_hnsw = self._serves_hnsw(table, query.tenant)
        distance = "p.vector <=> $1::{type}"
        order = distance if by_hnsw else f"({distance}) + 0, p.record"
        nearest = table.sql(SQL.nearest, filter=f" {clause}" if clause else "", order=order)
        vector = query.vector
        asked = _pack(vector) if table.type.startswith("vector") else _text(vector)
        values = [asked, query.tenant, wanted, *given.values]
        if not by_hnsw:
            with self._db.reading() as conn:
                return conn.execute(table.sql(nearest), values).fetchall()
        with self._db.snapshot() as conn:
            conn.execute(
                "set local hnsw.iterative_scan = strict_order; set local enable_sort = off; "
                f"set local hnsw.ef_search = {min(1000, max(100, wanted))}"
            )
            return conn.execute(table.sql(nearest), values).fetchall()

    def _serves_hnsw(self, table: _Table, tenant: str) -> bool:
        """Whether the HNSW index exists, and the tenant is large enough for it."""
        if not self._hnsw_rows:
            return False
        self._refresh(table)
        if not table.hnsw:
            return False
        known = table.large.get(tenant)
        if known is None or time.monotonic() - known[0] > _LOOK_AGAIN:
            with self._db.reading() as conn:
                size = conn.execute(
                    table.sql(SQL.tenant_size), (tenant, self._hnsw_rows)
                ).fetchone()[0]
            known = table.large[tenant] = (time.monotonic(), size >= self._hnsw_rows)
        return known[1]

    # the HNSW index
    def _refresh(self, table: _Table, conn: Session | None = None) -> bool:
        """Check whether the HNSW index exists, at most once per `_LOOK_AGAIN`; returns whether it
        should be built."""
        if time.monotonic() - table.looked < _LOOK_AGAIN:
            return False
        table.looked = time.monotonic()
        with self._reading(conn) as db:
            rows, valid = _hnsw_state(db, table)
        table.hnsw = bool(valid)
        return rows >= self._hnsw_rows and not valid

    def _consider(self, table: _Table, conn: Session) -> None:
        """Build the HNSW index in the background once the collection is large."""
        if not self._hnsw_rows or not self._refresh(table, conn) or not self._can_be_indexed(table):
            return
        if self._builder is None or not self._builder.is_alive():
            self._builder = threading.Thread(
                target=self._build_quietly, args=(table,), name="evervec-hnsw", daemon=True
            )
            self._builder.start()

    def _can_be_indexed(self, table: _Table) -> bool:
        kind, _, size = table.type.rstrip(")").partition("(")
        return int(size) <= _MOST_HNSW[kind]

    def _build_quietly(self, table: _Table) -> None:
        try:
            self.build_hnsw(table.version)
        except (EvervecError, psycopg.Error) as error:
            log.warning("building the HNSW index of %s is postponed: %s", table.name, error)

    def build_hnsw(self, version: int) -> bool:
        """Build the HNSW index of a collection, while it is read and written; False when it exists,
        or another process is building it. The remains of a killed build are dropped and built
        again."""
        table = self._table(version, 0)
        if table is None:
            return False
        with self._db.explained(), self._db.dedicated() as raw:
            conn = Session(raw)
            # an advisory lock ends with the connection, and so also when its process is killed
            if not conn.execute(SQL.take_building, (version,)).fetchone()[0]:
                return False
            _, valid = _hnsw_state(conn, table)
            if valid:
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

    # verify
    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        self._look()
        table = self._tables.get(version)
        if table is None:
            return []
        with self._db.reading() as conn:
            rows = conn.execute(table.sql(SQL.held), (after, upto, tenant)).fetchall()
        return [Held(*row) for row in rows]

    def remove(self, version: int, points: Sequence[Held]) -> int:
        table = self._table(version, 0)
        if table is None or not points:
            return 0
        with self._db.writing(durable=True) as db:
            rows = columns([(p.record, p.hash, p.tenant, p.seq) for p in points])
            gone: int = db.execute(table.sql(SQL.remove_points), rows).rowcount
        return gone

    def drop(self, version: int) -> None:
        table = self._table(version, 0)
        with self._db.writing(durable=True) as db:
            if table is not None:
                db.execute(table.sql(SQL.drop_table))
            db.execute(SQL.drop_removals, (version,))
        self._tables.pop(version, None)

    def revive(self, version: int, records: Sequence[int]) -> None:
        """Nothing to do: the index is restored together with its store, and is never ahead of
        it."""

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        with self._db.reading() as conn:
            tables = [_Table(*row) for row in conn.execute(SQL.tables) if row[0] not in known]
            return [
                Stray(table.version, owner, records, table)
                for table in tables
                for owner, records in conn.execute(
                    table.sql(SQL.stray_records), (tenant,)
                ).fetchall()
            ]

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        for stray in strays:
            try:
                self._drop_stray(stray.place, stray.tenant)
            except StoreError as error:  # dropped by others: nothing is left to do
                if not isinstance(error.__cause__, psycopg.errors.UndefinedTable):
                    raise
                self._tables.pop(stray.place.version, None)

    def _drop_stray(self, table: _Table, tenant: str) -> None:
        with self._db.writing(durable=True) as conn:
            conn.execute(table.sql(SQL.drop_stray_points), (tenant,))
            if conn.execute(table.sql(SQL.is_empty)).fetchone()[0]:
                conn.execute(table.sql("drop table {points}"))
                conn.execute(SQL.drop_stray_removals, (table.version,))
                self._tables.pop(table.version, None)

    def tend(self, before: float) -> None:
        """Nothing to do: the store's maintenance is enough."""

    def close(self) -> None:
        pass


def _hnsw_state(conn: Session, table: _Table) -> tuple[float, bool | None]:
    row = conn.execute(SQL.hnsw_state, (f"evervec.{table.name}", f"{table.name}_hnsw")).fetchone()
    return row[0], row[1]


def _pack(vector: NDArray[np.float32]) -> Packed:
    return Packed(struct.pack(">hh", len(vector), 0) + vector.astype(">f4").tobytes())


def _text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def pack_vectors(
    vectors: Sequence[NDArray[np.float32]] | NDArray[np.float32], element: int
) -> Packed:
    """Vectors of one length as an array of the type `vector`, whose OID is `element`."""
    size = len(vectors[0])
    fields = [("bytes", ">i4"), ("size", ">i2"), ("unused", ">i2"), ("vector", ">f4", (size,))]
    rows = np.zeros(len(vectors), np.dtype(fields))
    rows["bytes"], rows["size"] = 4 + 4 * size, size
    rows["vector"] = np.asarray(vectors)
    return Packed(struct.pack(">iiIii", 1, 0, element, len(vectors), 1) + rows.tobytes())
