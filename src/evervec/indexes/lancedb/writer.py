"""Commits to one table: one writer at a time, behind a fence.

A writer that finds another writer's commit as the latest starts with a fence: a commit that
restores the table's head and changes nothing. LanceDB refuses a commit that began before another
writer's fence and comes after it. So no other writer comes between reading a record's rows and
replacing them. A writer that was suspended in between (and lost its turn, its lease, or both) has
its commit refused, whatever the store's lock says. A fence that itself comes late sets the latest
version back, but the store's head stays: readers read the head, and the next writer returns to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from lancedb.index import Bitmap, BTree, IvfHnswSq, LabelList

from evervec.indexes.lancedb.head import Head, Overtaken
from evervec.indexes.lancedb.reader import ALL, TRIES, connect, explained, first_line, open_table
from evervec.indexes.lancedb.rows import schema

T = TypeVar("T")

log = logging.getLogger("evervec")

_HEAD = "head"
_LEAST_COMMITS, _ROWS_FOR_ONE_MORE, _MOST_COMMITS = 10, 1000, 44
"""commits before the table is cleaned up: the larger a table is, the more that costs"""
_INDEX_FROM = 2000
"""number of rows from which scalar indexes are faster than a full scan"""
_SCALARS: dict[str, Any] = {"id": BTree, "record": BTree, "tenant": Bitmap, "terms": LabelList}
_EVERY_RECORD = 1 << 63
_LARGE = 1_000_000


class Writer:
    """One table, for the thread that has the turn."""

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
        return self._table

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
        self.highest = _EVERY_RECORD if known else _highest(table)

    # maintenance
    def tidy_if_needed(self) -> None:
        if self._mine - self._tidied >= self._patience:
            self.tidy()

    def tidy(self) -> None:
        """Compact files, remove old versions, and update the indexes."""
        self.commit(self._tend)
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


def _highest(table: Any) -> int:
    """The highest record number; for a very large table it is not computed."""
    if table.count_rows() > _LARGE:
        return _EVERY_RECORD
    found = table.search().select(["record"]).limit(ALL).to_arrow()
    return max(found.column("record").to_numpy(), default=0)
