"""Commits to one table: one writer at a time, behind a barrier.

A writer that finds another writer's commit as the latest starts with a barrier: a commit that
restores the table's head and changes nothing. LanceDB refuses a commit that began before another
writer's barrier and comes after it. So no other writer comes between reading a record's rows and
replacing them. A writer that was suspended in between (and lost the lock, its lease, or both) has
its commit refused, whatever the store's lock says. A barrier that itself comes late sets the latest
version back, but the store's head stays: readers read the head, and the next writer returns to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from lancedb.index import Bitmap, BTree, IvfSq, LabelList

from evervec.indexes.lancedb.head import Head, Overtaken
from evervec.indexes.lancedb.reader import ALL, TRIES, connect, explained, first_line, open_table
from evervec.indexes.lancedb.rows import schema

T = TypeVar("T")

log = logging.getLogger("evervec")

_HEAD = "head"
_LEAST_COMMITS, _ROWS_FOR_ONE_MORE, _MOST_COMMITS = 10, 1000, 44
"""commits before the table is cleaned up: the larger a table is, the more that costs"""
_ROWS_FOR_EACH, _MOST_WITHOUT_ANN = 2000, 256
"""the same for a large table without an ANN index, whose cleanup rewrites all rows"""
_INDEX_FROM = 2000
"""number of rows from which scalar indexes are faster than a full scan"""
_MOST_PARTS = 32
"""parts of an ANN index, of which each cleanup adds one: 25 make a search take 2.5 times as long"""
_SAMPLE = 64
"""vectors from which each partition of an ANN index is learned: with LanceDB's 256, building takes
3.4 times as long, and finds no more"""
_SCALARS: dict[str, Any] = {
    "id": BTree, "record": BTree, "tenant": Bitmap, "terms": LabelList, "removed_at": BTree,
}  # fmt: skip
"""every search leaves out tombstones: without an index of them it takes 1.7 times as long"""
_EVERY_RECORD = 1 << 63
_LARGE = 1_000_000


class Writer:
    """One table, for the thread that has the writer lock."""

    def __init__(self, folder: str, name: str, head: Head, dimensions: int, ann_rows: int) -> None:
        self._folder = folder
        self._name = name
        self._head = head
        self._dimensions = dimensions
        self._ann_rows = ann_rows
        self._table: Any = None
        self._tidied = 0
        self._patience = _LEAST_COMMITS
        self._mine = 0
        """the version of this writer's last commit; 0: none"""
        self.highest = _EVERY_RECORD
        """no record above this one is in the table; raised by whoever adds one"""

    def commit(self, work: Callable[[Any], T]) -> T:
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
                    self._table, self._mine = None, 0  # the table may have been dropped
                    if not left:
                        raise
                    log.info("retrying a write to %s: %s", self._name, first_line(error))
        raise AssertionError("the last attempt returns or raises")

    def _open_to_write(self) -> Any:
        if self._table is None:
            db = connect(self._folder)
            shape = schema(self._dimensions)
            self._table = open_table(db, self._name) or db.create_table(
                self._name, schema=shape, exist_ok=True
            )
            self._tidied = self._table.version - len(self._table.list_versions())
            self._delete_broken_tag(self._table.tags)
        return self._table

    def _delete_broken_tag(self, tags: Any) -> None:
        """A full disk can leave the tag without content. LanceDB can then neither read nor update
        it, and nothing could be written any more. The next cleanup makes it again."""
        try:
            tags.list()
        except RuntimeError as error:
            log.warning("the tag of %s is broken and is deleted: %s", self._name, first_line(error))
            tags.delete(_HEAD)

    def _go_to_head(self, table: Any) -> None:
        """Start at the head of the last writer that held the lock, behind a barrier if that was
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
        barrier = table.version
        self._head.move(barrier)
        if self._head.read() != barrier:
            raise Overtaken("another writer wrote at the same time")
        self._mine = barrier
        self.highest = _EVERY_RECORD if known else _highest(table)

    # maintenance
    def maintain(self) -> None:
        """Build the ANN index if the table lacks one, or if it has too many parts; otherwise clean
        up when that is due. Batches only clean up."""
        if self.commit(self._lacks_ann):
            self._tidy(self._rebuild)
        else:
            self.tidy_if_needed()

    def tidy_if_needed(self) -> None:
        if self._mine - self._tidied >= self._patience:
            self.tidy()

    def tidy(self) -> None:
        self._tidy(self._compact)

    def _tidy(self, work: Callable[[Any], None]) -> None:
        """Compact files, update the indexes, and remove old versions."""
        self.commit(work)
        with explained(self._folder):
            self._clean()

    def _lacks_ann(self, table: Any) -> bool:
        if not self._ann_rows or table.count_rows() < self._ann_rows:
            return False
        ann = _ann_index(table)
        return ann is None or table.index_stats(ann.name).num_indices > _MOST_PARTS

    def _compact(self, table: Any) -> None:
        """With an ANN index, the cost depends on the number of new rows: LanceDB leaves files apart
        that different parts of the index cover. Without one it rewrites all files, so the scalar
        indexes are dropped before and built again: updating them along with the files costs
        more."""
        rows = table.count_rows()
        self._patience = min(_LEAST_COMMITS + rows // _ROWS_FOR_ONE_MORE, _MOST_COMMITS)
        if _ann_index(table):
            for _ in range(2):  # what the first has indexed, the second may compact
                table.optimize()
        else:
            most = min(rows // _ROWS_FOR_EACH, _MOST_WITHOUT_ANN)
            self._patience = max(self._patience, most)
            self._rewrite(table, rows)

    def _rebuild(self, table: Any) -> None:
        self._rewrite(table, table.count_rows())
        # IVF_HNSW_SQ found no more, and took minutes to build and to update at 100,000 rows
        table.create_index("vector", config=IvfSq(distance_type="cosine", sample_rate=_SAMPLE))
        self._patience = _MOST_COMMITS

    def _rewrite(self, table: Any, rows: int) -> None:
        for index in table.list_indices():
            table.drop_index(index.name)
        table.optimize()
        if rows >= _INDEX_FROM:
            for column, kind in _SCALARS.items():
                table.create_index(column, config=kind())

    def _clean(self) -> None:
        """Remove all versions but the head, which is tagged: LanceDB removes nothing at all if a
        tagged version would be removed. So if a late barrier hides the head, the head stays."""
        table = self._table
        tag = table.tags.update if _HEAD in table.tags.list() else table.tags.create
        tag(_HEAD, self._mine)
        try:
            # keeps nothing older: a reader of a removed version reads again
            table.optimize(cleanup_older_than=timedelta(milliseconds=1))
        except RuntimeError as error:
            log.info("optimization of %s is postponed: %s", self._name, first_line(error))
        self._tidied = self._mine

    def drop(self) -> None:
        with explained(self._folder):
            connect(self._folder).drop_table(self._name, ignore_missing=True)
        self._head.forget()


def _ann_index(table: Any) -> Any:
    """None: there is none."""
    return next((index for index in table.list_indices() if index.columns == ["vector"]), None)


def _highest(table: Any) -> int:
    """The highest record number; for a very large table it is not computed."""
    if table.count_rows() > _LARGE:
        return _EVERY_RECORD
    found = table.search().select(["record"]).limit(ALL).to_arrow()
    return max(found.column("record").to_numpy(), default=0)
