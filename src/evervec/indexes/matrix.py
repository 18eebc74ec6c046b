"""The vectors of one collection and tenant in memory.

Rows are in order of their point number, so new rows are appended, and removed rows are found by
bisection, marked, and compacted once they are many. A few vectors are all compared with the query.
Of many, sketches choose those that are compared (`sketch`). Vectors that take more memory than they
may are not kept: those that a search compares are then read from the store's file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.base import Matches
from evervec.indexes.products import Floats, products
from evervec.indexes.sketch import Sketcher, Sketches, agreement, estimate
from evervec.model.deadlines import check

HASH = np.dtype("V16")
_MANY = 4_000_000
"""count of numbers above which vectors are compared by their sketches first"""
_SPARSE = 64
"""if there are so many times more scores than wanted, a lower bound is computed first"""
_LEAST_CANDIDATES, _SHARE_CANDIDATES = 768, 128
"""So many vectors are candidates by their agreement, and one more in so many. Of the ten nearest,
99.8% are found among 242,000 vectors of wordllama, and 99.9% among a million of MiniLM."""
_SAMPLED = 64
"""of the best in a sample, from which the bound of all is derived"""
_LEAST_EXACT, _EXACT_PER_WANTED = 512, 8
"""so many of these are read from the store and compared exactly, and more if many are wanted"""
_BITS = 384
"""of a sketch for which these numbers are; sketches of fewer bits need more of both"""
_MOST_TESTED, _FITTING_PER_WANTED = 8, 4
"""A filter is tested on the best rows, on at most one in so many, until so many fit; then all that
fit are read."""

Places = NDArray[np.int64]
Read = Callable[[list[int]], list[tuple[int, bytes, bytes]]]
"""reads points from the store: of those that still exist the number, hash and vector"""


class Fitting(Protocol):
    """The records that fit a filter."""

    def all(self) -> NDArray[np.int64]: ...

    def among(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the given records that fit."""
        ...


class _Vectors(NamedTuple):
    vectors: Floats
    hashes: NDArray[np.void]


class _Rows(NamedTuple):
    """The arrays, with spare capacity behind `size`. A search keeps the arrays it started with,
    even if rows are appended or compacted into new arrays in the meantime."""

    size: int
    points: NDArray[np.int64]
    records: NDArray[np.int64]
    alive: NDArray[np.bool_]
    exact: _Vectors | None
    """None: there are too many to be kept in memory"""
    sketches: Sketches | None
    """None: there are few vectors"""

    @property
    def arrays(self) -> list[NDArray[Any]]:
        return [self.points, self.records, self.alive, *(self.exact or ()), *(self.sketches or ())]

    def resized(self, capacity: int, keep: slice | Places) -> _Rows:
        def copy(old: NDArray[Any]) -> NDArray[Any]:
            kept = old[keep]
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: len(kept)] = kept
            return new

        return _Rows(
            len(self.points[keep]),
            copy(self.points),
            copy(self.records),
            copy(self.alive),
            _Vectors(*[copy(part) for part in self.exact]) if self.exact else None,
            Sketches(*[copy(part) for part in self.sketches]) if self.sketches else None,
        )


class Matrix:
    """A growing block of unit vectors with their point and record numbers and hashes."""

    def __init__(
        self, dimensions: int, read: Read | None = None, most_bytes: int | None = None
    ) -> None:
        """`most_bytes`: many vectors are kept in memory up to this size; above, `read` reads
        them."""
        self.dimensions = dimensions
        self.sketcher: Sketcher | None = None
        self._read = read
        self._most_bytes = most_bytes
        self._dead = 0
        self._rows = _Rows(
            0,
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.bool_),
            _Vectors(np.empty((0, dimensions), np.float32), np.empty(0, HASH)),
            None,
        )

    def fork(self) -> Matrix:
        """A copy that can be changed while other threads search this one. Only the latest fork may
        be changed."""
        other = Matrix(self.dimensions, self._read, self._most_bytes)
        other.sketcher, other._dead = self.sketcher, self._dead
        other._rows = self._rows._replace(alive=self._rows.alive.copy())
        return other

    def __len__(self) -> int:
        return self._rows.size - self._dead

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._rows.arrays)

    @property
    def keeps_vectors(self) -> bool:
        return self._rows.exact is not None

    def append(
        self,
        points: Sequence[int],
        records: Sequence[int],
        hashes: Sequence[bytes],
        vectors: Sequence[bytes],
    ) -> None:
        """Add rows whose point numbers are larger than all before."""
        block = np.frombuffer(b"".join(vectors), "<f4").reshape(len(points), self.dimensions)
        rows, new = self._with_room(points, records)
        exact = rows.exact
        if exact is not None:
            exact.vectors[new] = block
            exact.hashes[new] = np.frombuffer(b"".join(hashes), HASH)
            if rows.sketches is None and new.stop * self.dimensions >= _MANY:
                self.sketcher = Sketcher.of(exact.vectors[: new.stop])
                rows = rows._replace(sketches=Sketches.empty(len(rows.points), self.dimensions))
                new = slice(0, new.stop)
                block = exact.vectors[new]
        if rows.sketches is not None and self.sketcher is not None:
            rows.sketches.put(new, self.sketcher.sketch(block))
            if self._most_bytes is not None and 4 * new.stop * self.dimensions > self._most_bytes:
                rows = rows._replace(exact=None)
        self._rows = rows._replace(size=new.stop)

    def append_sketches(
        self,
        points: NDArray[np.int64],
        records: NDArray[np.int64],
        sketches: Sketches,
        sketcher: Sketcher,
    ) -> None:
        """Add rows whose vectors are not kept in memory, to rows of the same kind."""
        if self.sketcher is None:
            self.sketcher = sketcher
            none = Sketches.empty(len(self._rows.points), self.dimensions)
            self._rows = self._rows._replace(exact=None, sketches=none)
        rows, new = self._with_room(points, records)
        assert rows.sketches is not None
        rows.sketches.put(new, sketches)
        self._rows = rows._replace(size=new.stop)

    def _with_room(
        self, points: Sequence[int] | Places, records: Sequence[int] | Places
    ) -> tuple[_Rows, slice]:
        """The arrays with the new rows' numbers, and the place of the new rows."""
        rows = self._rows
        start, end = rows.size, rows.size + len(points)
        if end > len(rows.points):
            rows = rows.resized(max(end, len(rows.points) * 3 // 2, 64), slice(0, start))
        rows.points[start:end] = points
        rows.records[start:end] = records
        rows.alive[start:end] = True
        return rows, slice(start, end)

    def discard(self, points: Sequence[int] | Places) -> None:
        """Remove points; unknown points are ignored."""
        rows = self._rows
        wanted = np.unique(np.asarray(points, np.int64))
        places = np.searchsorted(rows.points[: rows.size], wanted)
        inside = places < rows.size
        places, wanted = places[inside], wanted[inside]
        places = places[(rows.points[places] == wanted) & rows.alive[places]]
        rows.alive[places] = False
        self._dead += len(places)
        if self._dead > 64 and self._dead * 4 > rows.size:
            keep = np.flatnonzero(rows.alive[: rows.size])
            self._rows, self._dead = rows.resized(max(len(keep) * 5 // 4, 64), keep), 0

    def nearest(self, vector: Floats, limit: int, fitting: Fitting | None = None) -> Matches:
        """The best chunk of each of the `limit` nearest records, of those that fit if `fitting` is
        given."""
        rows, alive = self._rows, None
        if self._dead:
            alive = rows.alive[: rows.size]
        scores: _Exact | _Sketched
        if self.sketcher is None:
            scores = _Exact(rows, vector, alive, fitting)
        else:
            scores = _Sketched(rows, vector, alive, fitting, self.sketcher, self._read)
        take = limit
        while True:
            near, places, hashes = scores.best(take)
            records = rows.records.take(places).tolist()
            all_seen = len(records) < take or take >= rows.size
            if len(set(records)) < len(records):  # several chunks of one record: keep the best
                firsts = dict(zip(reversed(records), range(len(records) - 1, -1, -1), strict=True))
                best = sorted(firsts.values())[:limit]
                near, hashes = near[best], hashes.take(best)
                records = [records[place] for place in best]
            if all_seen or len(records) >= limit:
                return Matches(records, near.tolist(), _Hashes(hashes))
            take *= 4


Best = tuple[Floats, Places, NDArray[np.void]]
"""the best scores, their places and hashes, the best first"""


class _Exact:
    """The scores of all rows."""

    def __init__(
        self, rows: _Rows, vector: Floats, alive: NDArray[np.bool_] | None, fitting: Fitting | None
    ) -> None:
        assert rows.exact is not None
        self._hashes = rows.exact.hashes
        self._scores = products(rows.exact.vectors[: rows.size], vector)
        if alive is not None:
            self._scores[~alive] = -np.inf
        if fitting is not None:
            self._scores[~np.isin(rows.records[: rows.size], fitting.all())] = -np.inf

    def best(self, count: int) -> Best:
        near, places = _top(self._scores, count)
        found = np.count_nonzero(near > -np.inf)
        places = places[:found]
        return near[:found], places, self._hashes.take(places)


class _Sketched:
    """How well the rows' sketches agree with the query, and exact scores of the best."""

    def __init__(
        self,
        rows: _Rows,
        vector: Floats,
        alive: NDArray[np.bool_] | None,
        fitting: Fitting | None,
        sketcher: Sketcher,
        read: Read | None,
    ) -> None:
        assert rows.sketches is not None
        self._rows, self._sketches = rows, rows.sketches
        self._vector, self._query = vector, sketcher.query(vector)
        self._fitting = fitting
        self._read = read
        self._wider = max(_BITS / len(vector), 1.0)
        check()
        self._agreement = agreement(self._sketches.bits[: rows.size], self._query)
        if alive is not None:
            self._agreement[~alive] = -np.inf

    def best(self, count: int) -> Best:
        exact = max(int(_LEAST_EXACT * self._wider), _EXACT_PER_WANTED * count)
        some = self._candidates(exact)
        if len(some) > exact and self._rows.exact is None:
            check()
            scores = estimate(self._sketches.take(some), self._query)
            some = some.take(_sorted(scores, exact)[1])
        near, some, hashes = self._compared(some)
        near, places = _sorted(near, count)
        return near, some.take(places), hashes.take(places)

    def _candidates(self, exact: int) -> Places:
        """The rows that are worth a comparison."""
        size = self._rows.size
        share = _LEAST_CANDIDATES + size // _SHARE_CANDIDATES
        wanted = max(int(share * self._wider), 2 * exact)
        if self._fitting is None:
            return self._agreeing(wanted)
        while wanted < size // _MOST_TESTED:
            some = self._agreeing(wanted)
            fitting = self._fitting.among(np.unique(self._rows.records.take(some)))
            some = some[np.isin(self._rows.records.take(some), fitting)]
            if len(some) >= exact // _EXACT_PER_WANTED * _FITTING_PER_WANTED:
                return some
            wanted *= 8 if len(some) else size
        alive = np.flatnonzero(self._agreement > -np.inf)
        return alive[np.isin(self._rows.records.take(alive), self._fitting.all())]

    def _agreeing(self, count: int) -> Places:
        """About `count` of the rows that agree best, and never less than half; every row if there
        are not so many."""
        sample = self._agreement[:: max(count // _SAMPLED, 1)]
        share = -(-count * len(sample) // self._rows.size)
        some = np.flatnonzero(self._agreement >= max(_least_of_best(sample, share), 0))
        if 2 * len(some) < count:
            some = np.flatnonzero(self._agreement >= max(_least_of_best(self._agreement, count), 0))
        return some

    def _compared(self, places: Places) -> Best:
        """The exact scores of rows; a row whose point no longer exists is left out."""
        exact = self._rows.exact
        if exact is not None:
            scores = products(exact.vectors.take(places, axis=0), self._vector)
            return scores, places, exact.hashes.take(places)
        assert self._read is not None
        places = np.sort(places)
        points = self._rows.points.take(places)
        found = self._read(points.tolist())
        if not found:
            return np.empty(0, np.float32), places[:0], np.empty(0, HASH)
        there, hashes, vectors = zip(*found, strict=True)
        block = np.frombuffer(b"".join(vectors), "<f4").reshape(len(there), -1)
        places = places.take(np.searchsorted(points, np.asarray(there, np.int64)))
        return products(block, self._vector), places, np.frombuffer(b"".join(hashes), HASH)


class _Hashes(Sequence[bytes]):
    """Hashes, converted on access: few searches need them."""

    def __init__(self, hashes: NDArray[np.void]) -> None:
        self._hashes = hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, place: Any) -> Any:
        return self._hashes[place].tobytes()


def _top(scores: Floats, count: int) -> tuple[Floats, Places]:
    """The largest scores and their places, largest first."""
    if count * _SPARSE < len(scores):
        some = np.flatnonzero(scores >= _bound(scores, count))
        near, places = _sorted(scores.take(some), count)
        return near, some.take(places)
    return _sorted(scores, count)


def _bound(scores: Floats, count: int) -> Any:
    """A score that at least `count` reach, and not many more."""
    groups = 4 * count
    if groups * 2 > len(scores):
        return _least_of_best(scores, count)
    # the best of each group: at least `count` scores reach the bound of these
    best = scores[: len(scores) // groups * groups].reshape(groups, -1).max(axis=1)
    return np.partition(best, groups - count)[groups - count]


def _least_of_best(scores: Floats, count: int) -> Any:
    return np.partition(scores, -count)[-count] if count < len(scores) else -np.inf


def _sorted(scores: Floats, count: int) -> tuple[Floats, Places]:
    if count < len(scores):
        places = scores.argpartition(len(scores) - count)[len(scores) - count :]
        scores = scores.take(places)
        order = scores.argsort()[::-1]
        return scores.take(order), places.take(order)
    order = scores.argsort()[::-1]
    return scores.take(order), order
