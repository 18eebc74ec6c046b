"""One table: written atomically, read as of its head.

A writer that finds another writer's commit as the latest starts with a fence: a commit that
restores the table's head and changes nothing. LanceDB refuses a commit that began before another
writer's fence and comes after it. So no other writer comes between reading a record's rows and
replacing them. A writer that was suspended in between (and lost its turn, its lease, or both) has
its commit refused, whatever the store's lock says. A fence that itself comes late sets the latest
version back, but the store's head stays: readers read the head, and the next writer returns to it.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lancedb.index import Bitmap, BTree, IvfHnswSq, LabelList

from evervec.indexes.base import Held, Match, Matches, Query
from evervec.indexes.lancedb.filters import (
    clause,
    leaves_out_tombstones,
    numbers,
    says_it_all,
    text,
    texts,
)
from evervec.indexes.lancedb.head import Head, Overtaken
from evervec.indexes.lancedb.reader import (
    TRIES,
    Reader,
    connect,
    explained,
    first_line,
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
from evervec.indexes.separate import folded
from evervec.model.filters import matches
from evervec.model.records import Change
from evervec.stores.values import Applied

if TYPE_CHECKING:
    pass

T = TypeVar("T")

log = logging.getLogger("evervec")

_HEAD = "head"
_LEAST_COMMITS, _ROWS_FOR_ONE_MORE, _MOST_COMMITS = 10, 1000, 44
"""commits before the table is cleaned up: the larger a table is, the more that costs"""
_INDEX_FROM = 2000
"""number of rows from which scalar indexes are faster than a full scan"""
_MERGE_BY_INDEX_FROM = 50_000
"""higher for a merge, which scans the rows that are not indexed yet several times"""
_SCALARS: dict[str, Any] = {"id": BTree, "record": BTree, "tenant": Bitmap, "terms": LabelList}
_EVERY_RECORD = 1 << 63
_ALL = (1 << 32) - 1
_AT_ONCE = 10_000
_LARGE = 1_000_000


class Table:
    """The points of one collection."""

    def __init__(
        self, folder: str, name: str, head: Head, dimensions: int = 0, ann_rows: int = 0
    ) -> None:
        self._folder = folder
        self._head = head
        self.name = name
        self._dimensions = dimensions
        self._ann_rows = ann_rows
        self._reader = Reader(folder, name, head)
        self._writer: Any = None
        self._fits = False
        self._tidied = 0
        self._patience = _LEAST_COMMITS
        self._mine = 0
        """the version of this writer's last commit; 0: none"""
        self._highest = _EVERY_RECORD
        """no record above this one was in the table then"""

    # reading
    def search(self, query: Query) -> Matches:
        where = " and ".join([f"tenant = {text(query.tenant)}", *clause(query.conditions)])
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

    def held(self, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        where = f"removed_at is null and record > {after}"
        where += "" if upto is None else f" and record <= {upto}"
        where += "" if tenant is None else f" and tenant = {text(tenant)}"
        rows = self._reader.read(
            lambda t: _rows(t, where, [*KNOWN_BY, "text", "metadata", "vector"])
        )
        return sorted((held_of(row) for row in rows), key=lambda h: h.record)

    def tenants(self, tenant: str | None) -> dict[str, int]:
        """The number of records of each tenant."""
        where = "removed_at is null"
        where += "" if tenant is None else f" and tenant = {text(tenant)}"
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
        """Bring records to the state in the changes, in one commit. The caller has the turn."""
        latest = folded(changes)
        return self._commit(lambda table: self._merge(table, latest, now))

    def _merge(self, table: Any, changes: list[Change], now: float) -> Applied:
        keeps = any(change.kept for change in changes)
        with ThreadPoolExecutor(1) as beside:  # reads the present rows while the new ones are built
            look = beside.submit(self._present, table, changes)
            new = self._columns(() if keeps else changes, {}, now)
            there = look.result()
        self._highest = max(self._highest, *(c.record for c in changes))
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
        records = [c.record for c in changes if c.record <= self._highest]
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
            there = ((row["_rowid"], *(row[name] for name in KNOWN_BY)) for row in rows)
            keys = [row[0] for row in there if row in wanted]
            removed = len(keys)
            if keys:
                table.delete(f"_rowid in ({numbers(keys)})")

        self._commit(take_out)
        return removed

    def delete(self, where: str) -> None:
        self._commit(lambda table: table.delete(where))

    def drop_tenant(self, tenant: str) -> None:
        """Remove all points of a tenant, and the table with the last tenant; nothing if it is
        already gone."""
        if tenant in self.tenants(None):
            self.delete(f"tenant = {text(tenant)}")
        if not self.tenants(None):
            self.drop()

    def purge(self, before: float) -> int:
        """Purge tombstones from before that time, up to `_AT_ONCE` per call."""
        where = f"removed_at < {before!r}"
        found = self._reader.read(lambda t: _rows(t, where, ["id"], _AT_ONCE))
        if found:
            self.delete(f"{where} and id in ({texts(row['id'] for row in found)})")
        return len(found)

    def _commit(self, work: Callable[[Any], T]) -> T:
        """Run `work` on the table as one atomic step."""
        with explained(self._folder):
            for left in reversed(range(TRIES)):
                try:
                    table = self._open_to_write()
                    self._go_to_head(table)
                    done = work(table)
                    if table.version != self._mine:
                        self._head.move(table.version)
                        self._mine = table.version
                    return done
                except (RuntimeError, OSError, ValueError) as error:
                    self._writer, self._mine = None, 0  # the table may have been dropped
                    if not left:
                        raise
                    log.info("retrying a write to %s: %s", self.name, first_line(error))
        raise AssertionError("the last attempt returns or raises")

    def _open_to_write(self) -> Any:
        if self._writer is None:
            db = connect(self._folder)
            shape = schema(self._dimensions)
            self._writer = open_table(db, self.name) or db.create_table(
                self.name, schema=shape, exist_ok=True
            )
            self._tidied = self._writer.version - len(self._writer.list_versions())
        return self._writer

    def _go_to_head(self, table: Any) -> None:
        """Start at the head of the last writer that held the turn, behind a fence if that was
        another one."""
        table.checkout_latest()
        head, last = self._head.read(), table.version
        if self._mine == head == last:
            return
        known = self._mine != 0
        if head != last and head not in {v["version"] for v in table.list_versions()}:
            # no head is noted yet, or store and index were restored from different times
            head = last
        table.restore(head)
        fence = table.version
        self._head.move(fence)
        if self._head.read() != fence:
            raise Overtaken("another writer wrote at the same time")
        self._mine = fence
        self._highest = _EVERY_RECORD if known else _highest(table)

    # maintenance
    def drop(self) -> None:
        with explained(self._folder):
            connect(self._folder).drop_table(self.name, ignore_missing=True)
        self._head.forget()

    @property
    def untidy(self) -> bool:
        return self._mine - self._tidied >= self._patience

    def tidy(self) -> None:
        """Compact files, remove old versions, and update the indexes."""
        self._commit(self._tend)
        with explained(self._folder):
            self._clean()

    def _tend(self, table: Any) -> None:
        rows = table.count_rows()
        self._patience = min(_LEAST_COMMITS + rows // _ROWS_FOR_ONE_MORE, _MOST_COMMITS)
        indexes = table.list_indices()
        has_ann = any(index.columns == ["vector"] for index in indexes)
        # dropped here and built again below: updating them along with the files costs more
        for index in indexes:
            if index.columns != ["vector"]:
                table.drop_index(index.name)
        for _ in range(2 if has_ann else 1):
            table.optimize()
        if rows >= _INDEX_FROM:
            for column, kind in _SCALARS.items():
                table.create_index(column, config=kind())
        if self._ann_rows and rows >= self._ann_rows and not has_ann:
            table.create_index("vector", config=IvfHnswSq(distance_type="cosine"))

    def _clean(self) -> None:
        """Remove all versions but the head, which is tagged: LanceDB removes nothing at all if a
        tagged version would be removed. So if a late fence hides the head, the head stays."""
        table = self._writer
        tag = table.tags.update if _HEAD in table.tags.list() else table.tags.create
        tag(_HEAD, self._mine)
        try:
            # keeps nothing older: a reader of a removed version reads again
            table.optimize(cleanup_older_than=timedelta(milliseconds=1))
        except RuntimeError as error:
            log.info("optimization of %s is postponed: %s", self.name, first_line(error))
        self._tidied = self._mine

    def heal(self) -> None:
        """Go back to the head after a late writer that died before it could do so itself."""
        if self._reader.read(lambda _: [{}]):
            self._commit(lambda _: None)


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


def _rows(table: Any, where: str, columns: Sequence[str], limit: int = _ALL) -> list[Row]:
    query = table.search().where(where).with_row_id(True)
    return as_rows(query.select(list(columns)).limit(limit).to_arrow(timeout=time_left()))


def _highest(table: Any) -> int:
    """The highest record number; for a very large table it is not computed."""
    if table.count_rows() > _LARGE:
        return _EVERY_RECORD
    found = table.search().select(["record"]).limit(_ALL).to_arrow()
    return max(found.column("record").to_numpy(), default=0)
