"""A model of an index apart from its store: dictionaries that do all that the contract allows.

It keeps what `evervec.indexes.base` asks of every index, and takes the liberties that it leaves:
a batch is written record by record, so others see a part of it, and a failure may leave a part;
an answer may be lost after the write; tombstones are forgotten when `maintain` allows it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.errors import IndexUnavailable
from evervec.indexes.base import (
    Copy,
    Held,
    Match,
    Matches,
    Query,
    StoredVector,
    Stray,
    similarities_of,
)
from evervec.indexes.separate import folded
from evervec.model.filters import matches
from evervec.model.records import Change, ModelSpec
from evervec.model.reports import IndexBuild
from evervec.stores.values import Applied, Collection
from explorer.disk import Ask
from explorer.steps import AWAY, INDEX, LOST, PART, Step


class Stored(NamedTuple):
    """A point as the index has it."""

    position: int
    text: str
    vector: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Entry:
    """One record of one version; without points it is a tombstone."""

    tenant: str
    seq: int
    points: Mapping[bytes, Stored] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    removed_at: float | None = None


Place = tuple[int, int]
"""version and record"""


class IndexState:
    """What the index holds, for all processes."""

    def __init__(self) -> None:
        self.entries: dict[Place, Entry] = {}
        self.reads = self.writes = False

    def digest(self) -> int:
        """A hash of all that it holds."""
        return hash(
            tuple(
                (place, entry.tenant, entry.seq, entry.removed_at, tuple(sorted(entry.points)))
                for place, entry in sorted(self.entries.items())
            )
        )

    def copy(self) -> "IndexState":
        made = copy(self)
        made.entries = dict(self.entries)
        return made


class ModelIndex:
    """The index as one process sees it: each call is a step that the scheduler allows."""

    url = "model://index"
    shares_store = False
    generation = 0

    def __init__(self, state: Callable[[], IndexState], ask: Ask, now: Callable[[], float]) -> None:
        self._state = state
        self._ask = ask
        self._now = now

    def _reading(self, what: str) -> dict[Place, Entry]:
        if self._ask(Step(INDEX, what, False)) in (AWAY, LOST, PART):
            raise IndexUnavailable("the index cannot be reached")
        state = self._state()
        state.reads = True
        return state.entries

    def _writing(self, what: str) -> "_Write":
        action = self._ask(Step(INDEX, what, True))
        if action == AWAY:
            raise IndexUnavailable("the index cannot be reached")
        state = self._state()
        state.reads = state.writes = True
        return _Write(state.entries, action)

    def table(self, collection: Collection) -> str:
        return f"model_{collection.version}"

    def refuses(self, kind: str, spec: ModelSpec) -> str | None:
        return None

    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        assert conn is None, "this index has no part in the store's transactions"
        applied = Applied()
        left = folded(changes)
        if not left:
            return applied
        for number, change in enumerate(left):
            # each record by itself: others come in between
            write = self._writing(f"apply {number + 1} of {len(left)}" if number else "apply")
            if write.action == PART and len(left) == 1:
                write.action = AWAY  # a record is written whole or not at all
                raise IndexUnavailable("the index failed")
            self._apply(write.entries, change, applied)
            if write.action in (LOST, PART):
                raise IndexUnavailable("the index did not answer")
        return applied

    def _apply(self, entries: dict[Place, Entry], c: Change, applied: Applied) -> None:
        place = (c.version, c.record)
        there = entries.get(place)
        if there is not None and there.seq > c.seq:
            applied.newer[place] = there.seq
            return
        if not c.points and not c.kept:
            entries[place] = Entry(c.tenant, c.seq, removed_at=self._now())
            return
        points = {}
        for hash, position in c.kept.items():
            if there is not None and hash in there.points:
                points[hash] = there.points[hash]._replace(position=position)
            else:
                applied.missing.add(place)
        points |= {p.hash: Stored(p.position, p.text, p.vector) for p in c.points}
        entries[place] = Entry(c.tenant, c.seq, points, dict(c.metadata))

    def search(self, query: Query) -> Matches:
        found = [
            Match(record, hash, float(point.vector @ query.vector))
            for (v, record), entry in self._reading("search").items()
            if v == query.version
            and entry.tenant == query.tenant
            and matches(entry.metadata, query.conditions)
            for hash, point in entry.points.items()
        ]
        return Matches.of(found, query.limit)

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        entries = self._reading("vectors")
        found = {record: entries.get((version, record)) for record in records}
        return {
            record: [StoredVector(h, p.position, p.vector) for h, p in entry.points.items()]
            for record, entry in found.items()
            if entry is not None and entry.points
        }

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        return similarities_of(self.vectors(query.version, records), query.vector)

    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        return list(_held(self._reading("held"), version, tenant, after, upto))

    def remove(self, version: int, points: Sequence[Held]) -> int:
        if not points:
            return 0
        write, gone = self._writing("remove"), 0
        for point in points:
            place = (version, point.record)
            entry = write.entries.get(place)
            if entry is not None and entry.seq == point.seq and point.hash in entry.points:
                rest = {hash: p for hash, p in entry.points.items() if hash != point.hash}
                write.entries[place] = Entry(entry.tenant, entry.seq, rest, entry.metadata)
                if not rest:
                    del write.entries[place]
                gone += 1
        write.end()
        return gone

    def drop(self, version: int) -> None:
        write = self._writing("drop")
        for place in [place for place in write.entries if place[0] == version]:
            del write.entries[place]
        write.end()

    def revive(self, version: int, records: Sequence[int]) -> None:
        if not records:
            return
        write = self._writing("revive")
        for record in records:
            if (entry := write.entries.get((version, record))) and not entry.points:
                del write.entries[version, record]
        write.end()

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        found = Counter(
            (version, entry.tenant)
            for (version, _), entry in self._reading("strays").items()
            if version not in known and entry.points and tenant in (None, entry.tenant)
        )
        return [Stray(version, owner, count) for (version, owner), count in found.items()]

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        if not strays:
            return
        write, gone = self._writing("drop_strays"), {(s.version, s.tenant) for s in strays}
        for place, entry in list(write.entries.items()):
            if (place[0], entry.tenant) in gone:
                del write.entries[place]
        write.end()

    def maintain(self, before: float) -> None:
        write = self._writing("maintain")
        for place, entry in list(write.entries.items()):
            if entry.removed_at is not None and entry.removed_at < before:
                del write.entries[place]
        write.end()

    def builds(self) -> list[IndexBuild]:
        return []

    def is_loaded(self, version: int, tenant: str) -> bool:
        return True

    def close(self) -> None:
        pass


@dataclass(slots=True)
class _Write:
    """A write under way, and what is to happen to its answer."""

    entries: dict[Place, Entry]
    action: str

    def end(self) -> None:
        if self.action in (LOST, PART):
            raise IndexUnavailable("the index did not answer")


def _held(
    entries: Mapping[Place, Entry], version: int, tenant: str | None, after: int, upto: int | None
) -> Iterator[Held]:
    for (v, record), entry in sorted(entries.items()):
        if v != version or record <= after or (upto is not None and record > upto):
            continue
        if tenant not in (None, entry.tenant):
            continue
        for hash, point in entry.points.items():
            copy = Copy(point.text, entry.metadata)
            yield Held(record, entry.tenant, hash, entry.seq, hash, True, copy)
