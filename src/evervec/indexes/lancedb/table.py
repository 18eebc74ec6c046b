"""The points of one collection in one table, which `writer` writes and `reader` reads."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from evervec.indexes.base import Held, Match, Matches, Query, StoredVector
from evervec.indexes.lancedb.filters import (
    clause,
    leaves_out_tombstones,
    numbers,
    says_it_all,
    texts,
)
from evervec.indexes.lancedb.head import Head
from evervec.indexes.lancedb.reader import (
    ALL,
    Reader,
    connect,
    explained,
    open_table,
    time_left,
)
from evervec.indexes.lancedb.rows import (
    KNOWN_BY,
    Columns,
    Row,
    as_rows,
    by_hash,
    held_of,
    schema,
)
from evervec.indexes.lancedb.writer import Writer
from evervec.indexes.separate import folded
from evervec.model.filters import matches
from evervec.model.records import Change
from evervec.runtime.threads import submit
from evervec.stores.sql.quotes import literal
from evervec.stores.values import Applied

_MERGE_BY_INDEX_FROM = 50_000
"""number of rows from which a merge uses the scalar indexes: it scans rows that are not indexed yet
several times"""
_AT_ONCE = 10_000


class Table:
    """The points of one collection."""

    def __init__(
        self, folder: str, name: str, head: Head, dimensions: int = 0, ann_rows: int = 0
    ) -> None:
        self._folder = folder
        self.name = name
        self._dimensions = dimensions
        self._ann_rows = ann_rows
        self._reader = Reader(folder, name, head)
        self.writer = Writer(folder, name, head, dimensions, ann_rows)
        self._fits = False

    # reading
    def search(self, query: Query) -> Matches:
        where = " and ".join([f"tenant = {literal(query.tenant)}", *clause(query.conditions)])
        if not leaves_out_tombstones(query.conditions):
            where += " and removed_at is null"
        again = () if says_it_all(query.conditions) else query.conditions
        columns = ["record", "hash", "_distance", *(["metadata"] if again else [])]

        def find(table: Any, wanted: int, exact: bool) -> list[Row]:
            asked = table.search(query.vector).distance_type("cosine").where(where, prefilter=True)
            asked = asked.bypass_vector_index() if exact else asked.refine_factor(4)
            found = asked.select(columns).limit(wanted).to_arrow(timeout=time_left())
            return as_rows(found)  # best first

        wanted, exact = query.chunks, not self._ann_rows
        while True:
            rows = self._reader.read(lambda t: find(t, wanted, exact))  # noqa: B023 - called at once
            good = (
                Match(row["record"], row["hash"], 1.0 - row["_distance"])
                for row in rows
                if not again or matches(json.loads(row["metadata"]), again)
            )
            found = Matches.best_first(good, query.limit)
            if len(found) >= query.limit or (exact and len(rows) < wanted):
                return found
            if len(rows) < wanted:
                exact = True  # the ANN index searched too few of its partitions
            else:
                wanted *= 4

    def vectors(self, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        where = f"removed_at is null and record in ({numbers(records)})"
        columns = ["record", "hash", "position", "vector"]
        rows = self._reader.read(lambda t: _rows(t, where, columns))
        found: dict[int, list[StoredVector]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: row["position"]):
            point = StoredVector(row["hash"], row["position"], row["vector"])
            found[row["record"]].append(point)
        return dict(found)

    def held(self, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        where = f"removed_at is null and record > {after}"
        where += "" if upto is None else f" and record <= {upto}"
        where += "" if tenant is None else f" and tenant = {literal(tenant)}"
        rows = self._reader.read(
            lambda t: _rows(t, where, [*KNOWN_BY, "text", "metadata", "vector"])
        )
        return sorted((held_of(row) for row in rows), key=lambda h: h.record)

    def tenants(self, tenant: str | None) -> dict[str, int]:
        """The number of records of each tenant."""
        where = "removed_at is null"
        where += "" if tenant is None else f" and tenant = {literal(tenant)}"
        rows = self._reader.read(lambda t: _rows(t, where, ["tenant", "record"]))
        return Counter(owner for owner, _ in {(row["tenant"], row["record"]) for row in rows})

    # writing
    def misfit(self) -> str | None:
        """Why it cannot hold the vectors of its version; None: it can, or does not exist yet."""
        if self._fits:
            return None
        with explained(self._folder):
            table = open_table(connect(self._folder), self.name)
        if table is None:
            return None
        mine, there = schema(self._dimensions), table.schema
        self._fits = all(
            n in there.names and there.field(n).type == mine.field(n).type for n in mine.names
        )
        if self._fits:
            return None
        return (
            f"the LanceDB table {self.name} in {self._folder} does not hold vectors of "
            f"{self._dimensions} dimensions: rename or drop that table, or use another folder"
        )

    def write(self, changes: Sequence[Change], now: float) -> Applied:
        """Bring records to the state in the changes, in one commit. The caller has the writer lock."""
        latest = folded(changes)
        return self.writer.commit(lambda table: self._merge(table, latest, now))

    def _merge(self, table: Any, changes: list[Change], now: float) -> Applied:
        keeps = any(change.kept for change in changes)
        # reads the present rows while the new ones are built
        look = submit("evervec-lancedb", lambda: self._present(table, changes))
        new = self._columns(() if keeps else changes, {}, now)
        there = look.result()
        self.writer.highest = max(self.writer.highest, *(c.record for c in changes))
        applied = _not_done(changes, there)
        if applied.newer or keeps:
            changes = [c for c in changes if (c.version, c.record) not in applied.newer]
            new = self._columns(changes, there, now)
        over = [row["id"] for change in changes for row in there[change.record]]
        gone = [id for id in over if id not in new]
        if not len(new):
            if gone:
                table.delete(f"id in ({texts(gone)})")
        elif not over:  # no present rows, so nothing to merge with
            table.add(new.as_table())
        else:
            merge = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
            merge = merge.use_index(table.count_rows() >= _MERGE_BY_INDEX_FROM)
            if gone:
                merge = merge.when_not_matched_by_source_delete(f"id in ({texts(gone)})")
            merge.execute(new.as_table())
        return applied

    def _columns(
        self, changes: Sequence[Change], there: Mapping[int, list[Row]], now: float
    ) -> Columns:
        new = Columns(self._dimensions)
        for change in changes:
            new.add(change, by_hash(there[change.record]) if change.kept else {}, now)
        return new

    def _present(self, table: Any, changes: list[Change]) -> dict[int, list[Row]]:
        """The present rows of the changes' records. Records above the highest ever written are new,
        which saves a read for each batch of an initial load."""
        there: dict[int, list[Row]] = defaultdict(list)
        records = [c.record for c in changes if c.record <= self.writer.highest]
        if not records:
            return there
        columns = ["id", "record", "seq"]
        if any(c.kept for c in changes):
            columns += ["hash", "removed_at", "text", "vector"]
        first, last = min(records), max(records)
        where = f"record in ({numbers(records)})"
        if last - first < 2 * len(records):
            where = f"record >= {first} and record <= {last}"
        for row in _rows(table, where, columns):
            there[row["record"]].append(row)
        return there

    def remove(self, points: Sequence[Held]) -> int:
        wanted = {(p.key, *p[:4]) for p in points}
        removed = 0

        def take_out(table: Any) -> None:
            nonlocal removed
            where = f"removed_at is null and record in ({numbers({p.record for p in points})})"
            rows = _rows(table, where, KNOWN_BY)
            known = {row["_rowid"]: tuple(row[name] for name in KNOWN_BY) for row in rows}
            keys = [key for key, point in known.items() if (key, *point) in wanted]
            removed = len(keys)
            if keys:
                table.delete(f"_rowid in ({numbers(keys)})")

        self.writer.commit(take_out)
        return removed

    def delete(self, where: str) -> None:
        self.writer.commit(lambda table: table.delete(where))

    def drop_tenant(self, tenant: str) -> None:
        """Remove all points of a tenant, and the table with the last tenant; nothing if it is
        already gone."""
        if tenant in self.tenants(None):
            self.delete(f"tenant = {literal(tenant)}")
        if not self.tenants(None):
            self.writer.drop()

    def purge(self, before: float) -> int:
        """Purge tombstones from before that time, up to `_AT_ONCE` per call."""
        where = f"removed_at < {before!r}"
        found = self._reader.read(lambda t: _rows(t, where, ["id"], _AT_ONCE))
        if found:
            self.delete(f"{where} and id in ({texts(row['id'] for row in found)})")
        return len(found)

    def heal(self) -> None:
        """Go back to the head after a late writer that died before it could do so itself."""
        if self._reader.read(lambda _: [{}]):
            self.writer.commit(lambda _: None)


def table_names(folder: str) -> list[str]:
    """The tables in a folder that evervec made."""
    with explained(folder):
        db = connect(folder)
        names, page = [], None
        while page is None or page:
            found = db.list_tables(page_token=page)
            names += found.tables
            page = found.page_token or ""
        mine = set(schema(1).names)
        # a table that is being created, or was just dropped, cannot be opened
        found = ((name, open_table(db, name)) for name in names)
        return [name for name, t in found if t is not None and mine <= set(t.schema.names)]


def _not_done(changes: Sequence[Change], there: Mapping[int, list[Row]]) -> Applied:
    """Changes of records that have a newer write or removal, and those whose kept chunks are
    missing."""
    applied = Applied()
    for c in changes:
        rows = there.get(c.record, [])
        latest = max((row["seq"] for row in rows), default=0)
        if latest > c.seq:
            applied.newer[c.version, c.record] = latest
        elif c.kept and not c.kept.keys() <= by_hash(rows).keys():
            applied.missing.add((c.version, c.record))
    return applied


def _rows(table: Any, where: str, columns: Sequence[str], limit: int = ALL) -> list[Row]:
    query = table.search().where(where).with_row_id(True)
    return as_rows(query.select(list(columns)).limit(limit).to_arrow(timeout=time_left()))
