"""Tenants' words that a process holds in memory, kept up to date from the store's file.

A block has the directories of a tenant's parts (`postings`) and, as its tail, the words of the
records that were added or changed since. Postings of the parts are read by each search. A view is
what a block was at one state of the store; it is never changed.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from evervec.model.deadlines import holding
from evervec.stores.among import places_among
from evervec.stores.sqlite import postings
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.postings import Directory, Postings, Text, are_latest, batches
from evervec.stores.sqlite.ranking import usual_size
from evervec.stores.sqlite.tokens import Tokens

log = logging.getLogger("evervec")

_TAILS = 2
"""a tail has the records of at most so many parts"""
_MOST_POSTINGS = 8_000_000
"""of a tail"""
_BATCH = 1024
_SORTED_SHARE = 8
"""the unsorted postings of a tail are at most one in so many, or `_FEW_UNSORTED`"""
_FEW_UNSORTED = 4096
_NONE = Postings(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8))

_T = TypeVar("_T", bound=np.generic)

State = tuple[int, int]
"""the store's counter, and the number of its last write of parts"""


@dataclass(frozen=True, slots=True)
class View:
    """A tenant's records at one state of the store. Arrays may be longer than `count`."""

    state: State = (-1, -1)
    usual: float = 1.0
    """the mean number of words of the latest records"""
    count: int = 0
    records: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    alive: NDArray[np.bool_] = field(default_factory=lambda: np.empty(0, np.bool_))
    """false: a later entry replaces this one, or the record is not live"""
    dead: int = 0
    bases: dict[int, int] = field(default_factory=dict)
    """the first place of each part"""
    tail: int = 0
    """the first place of the records that are in no part"""
    by_record: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """places of the parts' records, in order of the records, the latest of one last"""
    upto: int = 0
    """the last record that was read, but for those that were changed since"""
    sorted: Postings = _NONE
    """of the tail"""
    unsorted: Postings = _NONE

    @property
    def own(self) -> int:
        """The number of live records."""
        return self.count - self.dead

    @property
    def is_too_long(self) -> bool:
        """Whether the tail takes too much memory."""
        records = self.count - self.tail
        words = len(self.sorted.words) + len(self.unsorted.words)
        return records > 2 * _TAILS * postings.ROWS or words > _MOST_POSTINGS

    @property
    def is_mostly_dead(self) -> bool:
        """Whether most entries of the tail were replaced by others."""
        late = self.alive[self.tail : self.count]
        return len(late) > _FEW_UNSORTED and 2 * int(np.count_nonzero(late)) < len(late)

    @property
    def nbytes(self) -> int:
        arrays = (self.records, self.sizes, self.alive, self.by_record)
        return sum(a.nbytes for a in (*arrays, *self.sorted, *self.unsorted))

    def places_of(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """The places of those of some records, given in order and once, that are alive."""
        before = self.records[: self.tail]
        at = np.searchsorted(before, records, "right", sorter=self.by_record) - 1
        found, wanted = self.by_record[at[at >= 0]], records[at >= 0]
        found = found[before[found] == wanted]
        late = self.tail + places_among(self.records[self.tail : self.count], records)
        places: NDArray[np.int64] = np.concatenate((found, late))
        return places[self.alive[places]]

    def in_tail(self, word: int) -> tuple[NDArray[np.int64], postings.Times]:
        """The places of the tail's records that contain a word, and how often they do."""
        words, places, times = self.sorted
        some = slice(np.searchsorted(words, word), np.searchsorted(words, word, "right"))
        late = np.flatnonzero(self.unsorted.words == word)
        return (
            np.concatenate((places[some], self.unsorted.places[late])),
            np.concatenate((times[some], self.unsorted.times[late])),
        )


class WordBlocks:
    """The blocks of a store, the least recently searched of which are evicted."""

    def __init__(self, db: Connections, tokens: Tokens, most_bytes: int) -> None:
        self.tokens = tokens
        self._db = db
        self._most_bytes = most_bytes
        self._blocks: OrderedDict[str, _Block] = OrderedDict()
        self._lock = threading.Lock()

    @contextmanager
    def snapshot(self, tenant: str, scope: str) -> Iterator[tuple[sqlite3.Connection, View | None]]:
        """A snapshot of the store, and the tenant's words in it; None: too many of its records are
        in no part."""
        with self._lock:
            block = self._blocks.setdefault(tenant, _Block())
            self._blocks.move_to_end(tenant)
        while True:
            with self._db.snapshot() as conn:
                state = conn.execute(SQL.words_state).fetchone()
                with holding(block.lock):
                    is_newer = block.view.state[0] > state[0] or block.view.state[1] > state[1]
                    view = None if is_newer else self._refreshed(conn, block, tenant, scope, state)
                if not is_newer:
                    self._evict()
                    yield conn, view
                    return
            # another thread has read more than this snapshot has

    def close(self) -> None:
        with self._lock:
            self._blocks.clear()
        self.tokens.close()

    def _refreshed(
        self, conn: sqlite3.Connection, block: _Block, tenant: str, scope: str, state: State
    ) -> View | None:
        view = block.view
        if view.state == state:
            return None if block.is_too_long else view
        if view.state[1] != state[1] or view.is_mostly_dead:
            view = replace(_read_parts(conn, tenant), state=(-1, state[1]))
            left = conn.execute(SQL.count_tail, (scope, view.upto, _TAILS * postings.ROWS + 1))
            block.is_too_long = left.fetchone()[0] > _TAILS * postings.ROWS
        try:
            if not block.is_too_long:
                view = self._add_changed(conn, view, tenant)
                for texts in batches(conn.execute(SQL.tail, (scope, view.upto)), _BATCH):
                    view = replace(self._add(view, texts), upto=texts[-1].record)
                    if view.is_too_long:
                        block.is_too_long = True
                        break
            view = replace(view, state=state, usual=usual_size(conn, scope))
        finally:  # after a deadline, the next refresh continues from here
            block.view = view if not block.is_too_long else View(state)
        return None if block.is_too_long else view

    def _add_changed(self, conn: sqlite3.Connection, view: View, tenant: str) -> View:
        """Read the records again that were changed since they were read."""
        rows = conn.execute(SQL.rewritten, (tenant, view.state[0], view.upto)).fetchall()
        if not rows:
            return view
        records = np.sort(np.array([record for (record,) in rows], np.int64))
        gone = view.places_of(records)
        alive = view.alive.copy()
        alive[gone] = False
        view = replace(view, alive=alive, dead=view.dead + len(gone))
        for texts in batches(conn.execute(SQL.texts, (listed(records.tolist()),)), _BATCH):
            view = self._add(view, texts)
        return view

    def _add(self, view: View, texts: Sequence[Text]) -> View:
        """Add live records to the tail."""
        directory, new = postings.index(texts, self.tokens)
        some = slice(view.count, view.count + len(texts))
        records = _with_room(view.records, view.count, some.stop)
        sizes = _with_room(view.sizes, view.count, some.stop)
        alive = _with_room(view.alive, view.count, some.stop)
        records[some], sizes[some], alive[some] = directory.records, directory.sizes, True
        early = view.sorted
        late = view.unsorted.joined(new._replace(places=new.places + view.count))
        if len(late.words) > max(_FEW_UNSORTED, len(early.words) // _SORTED_SHARE):
            all = early.joined(late)
            early, late = all.taken(np.argsort(all.words, kind="stable")), _NONE
        return replace(
            view, count=some.stop, records=records, sizes=sizes, alive=alive, sorted=early,
            unsorted=late,
        )  # fmt: skip

    def _evict(self) -> None:
        with self._lock:
            size = sum(block.view.nbytes for block in self._blocks.values())
            while len(self._blocks) > 1 and size > self._most_bytes:
                _, gone = self._blocks.popitem(last=False)
                size -= gone.view.nbytes


class _Block:
    def __init__(self) -> None:
        self.view = View()
        self.is_too_long = False
        self.lock = threading.Lock()


def _read_parts(conn: sqlite3.Connection, tenant: str) -> View:
    """The records of a tenant's parts."""
    rows = conn.execute(SQL.word_parts, (tenant,)).fetchall()
    found = [(part, last, Directory.unpack(data)) for part, last, data in rows]
    parts = [(part, last, directory) for part, last, directory in found if directory is not None]
    if len(parts) < len(found):
        log.warning(
            "the words of tenant %r are damaged: full text is slow until they are rebuilt", tenant
        )
        return View()
    if not parts:
        return View()
    directories = [directory for *_, directory in parts]
    records = np.concatenate([directory.records for directory in directories])
    sizes = np.concatenate([directory.sizes for directory in directories])
    alive = are_latest(directories) & (sizes > 0)
    starts = np.cumsum([0] + [len(directory.records) for directory in directories]).tolist()
    return View(
        count=len(records),
        records=records,
        sizes=sizes,
        alive=alive,
        dead=len(records) - int(alive.sum()),
        bases={part: start for (part, *_), start in zip(parts, starts, strict=False)},
        tail=len(records),
        by_record=np.argsort(records, kind="stable"),
        upto=max(last for _, last, _ in parts),
    )


def _with_room(array: NDArray[_T], count: int, end: int) -> NDArray[_T]:
    if end <= len(array):
        return array
    new = np.empty(max(end, len(array) * 9 // 8, 64), array.dtype)
    new[:count] = array[:count]
    return new
