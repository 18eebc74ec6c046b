"""The PostgreSQL store's own index: vectors in the same database, with the extension pgvector.

Each collection has its own table. Points are written in the transaction that finishes their job,
whose row is locked, so no other transaction writes the same record; a change outside a job locks
out other writers. Small tenants are searched exactly. For a large collection an HNSW index is built
in the background, and serves tenants that are themselves large.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext
from typing import Any

import psycopg

from evervec.errors import EvervecError, IndexUnavailable, StoreError
from evervec.indexes.base import (
    Held,
    Index,
    Match,
    Matches,
    Query,
    StoredVector,
    Stray,
    by_version,
)
from evervec.indexes.pgvector.fields import FieldIndexes
from evervec.indexes.pgvector.hnsw import Hnsw, reading
from evervec.indexes.pgvector.table import SQL, PointsTable, table_name
from evervec.indexes.pgvector.vectors import pack_vector, pack_vectors, unpack_vector, vector_text
from evervec.model.records import Change
from evervec.model.reports import IndexBuild
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.postgres.filters import Filter
from evervec.stores.sql.engine import columns
from evervec.stores.values import Applied, Collection, ReplicaFailed

_PAGE_DIMENSIONS = 1900
"""up to this size a row with its vector fits into a page"""


class PgvectorIndex(Index):
    """Vectors in the store's own database; `apply` joins the store's transaction."""

    shares_store = True

    def __init__(self, db: Connections, store: Store, settings: Settings) -> None:
        self.url = db.name
        self._db = db
        self._hnsw = Hnsw(db, settings)
        self._fields = FieldIndexes(db, store)
        self._kind = "halfvec" if settings.pgvector_half else "vector"
        self._parts = settings.pgvector_partitions
        self._tables: dict[int, PointsTable] = {}
        self._element = 0
        self._making = threading.Lock()

    # writing
    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        applied = Applied()
        work = [
            (self._table(version, _dimensions(group), conn), version, group)
            for version, group in by_version(changes)
        ]
        alone = conn is None
        context = self._db.writing(durable=True) if alone else nullcontext(conn)
        with self._handling_dropped_tables(), context as db:
            db.execute(SQL.shut_out_writers if alone else SQL.join_writers)
            for table, version, group in work:
                applied.add(self._apply(db, version, table, group, guarded=alone))
        return applied

    @contextmanager
    def _handling_dropped_tables(self) -> Iterator[None]:
        """Forget the known tables if one was dropped by others; the next write creates it again."""
        try:
            yield
        except ReplicaFailed:  # it does not have the table yet, or still
            raise
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
        table: PointsTable | None,
        changes: list[Change],
        *,
        guarded: bool,
    ) -> Applied:
        """`guarded`: the caller has not checked that the changes are the latest."""
        applied = Applied()
        records = [c.record for c in changes]
        points: list[tuple[int, bytes, int]] = []
        if table is not None:
            points = db.execute(table.sql(SQL.present), (records,)).fetchall()
        present: dict[int, set[bytes]] = defaultdict(set)
        for record, hash, _ in points:
            present[record].add(hash)
        latest = _latest(db, version, records, points) if guarded else {}
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
            self._hnsw.consider(table, db)
        return applied

    def table(self, collection: Collection) -> str:
        return f"evervec.{table_name(collection.version)}"

    def _table(
        self, version: int, dimensions: int, conn: Session | None = None
    ) -> PointsTable | None:
        """The table of a collection, created in its own transaction when the first vectors come;
        None before that."""
        table = self._tables.get(version)
        if table is None:
            self._look(conn)
            table = self._tables.get(version)
        if table is None and dimensions:
            table = PointsTable(
                version, f"{self._kind}({dimensions})", parts=self._partitions(conn)
            )
            with self._making:
                self._make(table, dimensions)
                self._look(conn)
            return self._tables.get(version, table)
        return table

    def _partitions(self, conn: Session | None) -> int:
        """Of a new table; 0: it is not split."""
        parts = self._parts
        if not parts:
            with reading(self._db, conn) as db:
                (parts,) = db.execute(SQL.store_partitions).fetchone()
        return parts if parts > 1 else 0

    def _look(self, conn: Session | None = None) -> None:
        """Read which tables exist, and forget what is cached about those that were split since."""
        with reading(self._db, conn) as db:
            known, found = self._tables, db.execute(SQL.tables).fetchall()
            self._tables = {
                version: known[version]
                if version in known and known[version].parts == parts
                else PointsTable(version, type, kind, parts)
                for version, type, kind, parts in found
            }
            if self._tables and not self._element:
                (self._element,) = db.execute(SQL.element_type).fetchone()

    def _make(self, table: PointsTable, dimensions: int) -> None:
        try:
            with self._db.aside() as conn:
                conn.execute("select pg_advisory_xact_lock(1702260081)")
                conn.execute(SQL.extension)
                for statement in self._unless_there(conn, table):
                    conn.execute(statement)
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

    def _unless_there(self, conn: Session, table: PointsTable) -> list[str]:
        """The statements that create a table. Another process may have created it meanwhile, with
        another number of partitions."""
        there = {version for version, *_ in conn.execute(SQL.tables)}
        return [] if table.version in there else table.creation()

    # searching
    def search(self, query: Query) -> Matches:
        table = self._table(query.version, 0)
        if table is None:
            return Matches()
        few = self._fields.few(table.kind, query) if table.kind and query.conditions else None
        wanted = query.chunks
        while True:
            with self._handling_dropped_tables():
                rows = self._nearest(table, query, wanted, few)
            found = Matches.of((Match(*row) for row in rows), query.limit)
            if len(found) >= query.limit or len(rows) < wanted:
                return found
            wanted *= 4

    def _nearest(
        self, table: PointsTable, query: Query, wanted: int, few: list[int] | None
    ) -> list[tuple[int, bytes, float]]:
        """`few`: the records that pass the conditions, if they are known."""
        filter, given = "", list[Any]()
        if few is not None:
            filter, given = SQL.among, [few]
        elif query.conditions:
            made = Filter(query.conditions, 3)
            filter, given = SQL.filter.replace("{filter}", made.clause), made.values
        by_hnsw = few is None and self._hnsw.serves(table, query.tenant)
        distance = "p.vector <=> $1::{type}"
        order = distance if by_hnsw else f"({distance}) + 0, p.record"
        nearest = table.sql(SQL.nearest, filter=f" {filter}" if filter else "", order=order)
        values = [_asked(table, query), query.tenant, wanted, *given]
        with self._db.snapshot() if by_hnsw else self._db.reading() as conn:
            if by_hnsw:
                conn.execute(
                    "set local hnsw.iterative_scan = strict_order; set local enable_sort = off; "
                    f"set local hnsw.ef_search = {min(1000, max(100, wanted))}"
                )
            rows: list[tuple[int, bytes, float]]
            rows = conn.execute(table.sql(nearest), values).fetchall()
        return rows

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        table = self._table(query.version, 0)
        if table is None:
            return {}
        with self._handling_dropped_tables(), self._db.reading() as conn:
            values = (_asked(table, query), query.tenant, list(records))
            return dict(conn.execute(table.sql(SQL.similarities), values).fetchall())

    def build_hnsw(self, version: int) -> bool:
        """Build the HNSW index of a collection, see `Hnsw.build`."""
        table = self._table(version, 0)
        return table is not None and self._hnsw.build(table)

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        table = self._table(version, 0)
        found: dict[int, list[StoredVector]] = defaultdict(list)
        if table is not None:
            with self._handling_dropped_tables(), self._db.reading() as conn:
                rows = conn.execute(table.sql(SQL.vectors), (list(records),)).fetchall()
            for record, hash, position, sent in rows:
                found[record].append(StoredVector(hash, position, unpack_vector(sent)))
        return dict(found)

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

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        with self._db.reading() as conn:
            every = [PointsTable(*row) for row in conn.execute(SQL.tables)]
            tables = [table for table in every if table.version not in known]
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

    def _drop_stray(self, table: PointsTable, tenant: str) -> None:
        with self._db.writing(durable=True) as conn:
            conn.execute(table.sql(SQL.drop_stray_points), (tenant,))
            (is_empty,) = conn.execute(table.sql(SQL.is_empty)).fetchone()
            if is_empty:
                conn.execute(table.sql(SQL.drop_table))
                conn.execute(SQL.drop_removals, (table.version,))
                self._tables.pop(table.version, None)

    def maintain(self, before: float) -> None:
        self._fields.maintain()
        self._look()
        self._hnsw.maintain(self._of_known_versions())

    def builds(self) -> list[IndexBuild]:
        self._look()
        return self._hnsw.builds(self._of_known_versions())

    def _of_known_versions(self) -> dict[int, PointsTable]:
        return {version: t for version, t in self._tables.items() if t.kind is not None}


def _dimensions(changes: Sequence[Change]) -> int:
    """Of the vectors in the changes; 0: there are none."""
    return next((len(p.vector) for c in changes for p in c.points), 0)


def _latest(
    db: Session, version: int, records: list[int], points: list[tuple[int, bytes, int]]
) -> dict[int, int]:
    """The highest seq of each record's points and removal."""
    latest: dict[int, int] = dict(db.execute(SQL.removed, (version, records)).fetchall())
    for record, _, seq in points:
        latest[record] = max(latest.get(record, seq), seq)
    return latest


def _asked(table: PointsTable, query: Query) -> Any:
    """A query's vector as a parameter."""
    is_full = table.type.startswith("vector")
    return pack_vector(query.vector) if is_full else vector_text(query.vector)
