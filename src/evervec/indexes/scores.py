"""The nearest rows of a matrix: by exact scores, or by sketches first.

A few vectors are all compared with the query. Of many, sketches choose those that are compared
(`sketch`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.products import Floats, products
from evervec.indexes.sketch import Counts, Sketcher, Sketches, differing, estimate, take_bits
from evervec.model.deadlines import check

HASH = np.dtype("V16")
_SPARSE = 64
"""if there are so many times more scores than wanted, a lower bound is computed first"""
_LEAST_CANDIDATES, _SHARE_CANDIDATES = 768, 128
"""So many vectors are candidates by the bits that agree, and one more in so many."""
_SAMPLED = 64
"""of the best in a sample, from which the bound of all is derived"""
_LEAST_EXACT, _EXACT_PER_WANTED = 1000, 8
"""So many of these, chosen by their estimated scores, are compared exactly, and more if many are
wanted or sketches have few bits. Among 1,200,000 mixtures of MiniLM vectors, 99.7% of the ten
nearest are found; with 320, 97.3%, in 12.2 ms of a processor instead of 14.6."""
_EXACT_BY_BITS = 320
"""so many with sketches of `_BITS`"""
_REMOVED = np.iinfo(np.uint16).max
"""counts as the bits that differ of a removed row, and is more than those of any other"""
_BITS = 384
"""of a sketch for which these numbers are; sketches of fewer bits need more of both"""
_LEAST_FITTING, _FITTING_PER_WANTED = 256, 4
"""A filter is tested on the candidates, the best first, until so many fit."""
_TESTED = 1024
"""so many at once"""
_MOST_TESTED, _FEW_FIT = 32, 16
"""If that would take more than one row in so many, or if less than one in so many fits a filter that
was asked before, all that fit are read, and kept for the next search."""

Places = NDArray[np.int64]
Read = Callable[[list[int]], list[tuple[int, bytes, bytes]]]
"""reads points from the store: of those that still exist the number, hash and vector"""


class FittingRecords(Protocol):
    """The records that fit a filter."""

    is_repeated: bool
    """whether an earlier search had the same filter"""

    def known(self) -> NDArray[np.int64] | None:
        """All of them, if they are known from an earlier search."""
        ...

    def all(self) -> NDArray[np.int64]: ...

    def among(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those of the given records that fit."""
        ...


class Vectors(NamedTuple):
    vectors: Floats
    hashes: NDArray[np.void]


class Rows(NamedTuple):
    """The arrays, with spare capacity behind `size`. A search keeps the arrays it started with,
    even if rows are appended or compacted into new arrays in the meantime."""

    size: int
    points: NDArray[np.int64]
    records: NDArray[np.int64]
    alive: NDArray[np.bool_]
    exact: Vectors | None
    """None: there are too many to be kept in memory"""
    sketches: Sketches | None
    """None: there are few vectors"""

    @property
    def arrays(self) -> list[NDArray[Any]]:
        return [self.points, self.records, self.alive, *(self.exact or ()), *(self.sketches or ())]

    def resized(self, capacity: int, keep: slice | Places) -> Rows:
        def copy(old: NDArray[Any], order: Literal["C", "F"] = "C") -> NDArray[Any]:
            kept = old[keep]
            new = np.empty((capacity, *old.shape[1:]), old.dtype, order)
            new[: len(kept)] = kept
            return new

        def copied(sketches: Sketches) -> Sketches:
            return Sketches(copy(sketches.bits, "F"), *map(copy, sketches[1:]))

        return Rows(
            len(self.points[keep]),
            copy(self.points),
            copy(self.records),
            copy(self.alive),
            Vectors(*[copy(part) for part in self.exact]) if self.exact else None,
            copied(self.sketches) if self.sketches else None,
        )


Best = tuple[Floats, Places, NDArray[np.void]]
"""scores, their places and hashes; mostly the best, and these first"""


class Exact:
    """The scores of all rows."""

    def __init__(
        self,
        rows: Rows,
        vector: Floats,
        alive: NDArray[np.bool_] | None,
        fitting: FittingRecords | None,
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


class Sketched:
    """How well the rows' sketches agree with the query, and exact scores of the best."""

    def __init__(
        self,
        rows: Rows,
        vector: Floats,
        alive: NDArray[np.bool_] | None,
        fitting: FittingRecords | None,
        sketcher: Sketcher,
        read: Read | None,
    ) -> None:
        assert rows.sketches is not None
        self._rows, self._sketches = rows, rows.sketches
        self._vector, self._query = vector, sketcher.query(vector)
        self._fitting = fitting
        self._read = read
        self._wider = max(_BITS / len(vector), 1.0)
        self._alive = alive
        self._differ: Counts | None = None

    def best(self, count: int) -> Best:
        least = max(_LEAST_EXACT, int(_EXACT_BY_BITS * self._wider))
        exact = max(least, _EXACT_PER_WANTED * count)
        check()
        if self._fitting is None:
            some = self._estimated(self._agreeing(self._wanted(self._rows.size, exact)), exact)
        else:
            some = self._fitting_rows(self._fitting, count, exact)
        return self._compared(some, count)

    def _wanted(self, size: int, exact: int) -> int:
        """How many of so many rows are candidates."""
        share = _LEAST_CANDIDATES + size // _SHARE_CANDIDATES
        return max(int(share * self._wider), 2 * exact)

    def _fitting_rows(self, fitting: FittingRecords, count: int, exact: int) -> Places:
        """The rows to compare of those that fit a filter."""
        known = fitting.known()
        if known is None:
            least = max(int(_LEAST_FITTING * self._wider), _FITTING_PER_WANTED * count)
            found = self._tested(fitting, least, self._wanted(self._rows.size, exact))
            if found is not None:
                return found
            known = fitting.all()
        some = self._rows_of(known)
        wanted = self._wanted(len(some), exact)
        if len(some) > wanted:
            differ = differing(take_bits(self._sketches.bits, some), self._query)
            some = some[differ <= _most_of_best(differ, wanted)]
        return self._estimated(some, exact)

    def _tested(self, fitting: FittingRecords, least: int, wanted: int) -> Places | None:
        """At least so many of the best rows that fit, found by testing the best of all; None: so
        few fit that it is better to find all."""
        most = self._rows.size // _MOST_TESTED
        found: list[Places] = []
        seen = np.empty(0, np.int64)
        for pool in (wanted, most):
            some = self._agreeing(pool)
            some = some.take(_sorted(self._estimates(some), pool)[1])
            some = some[~np.isin(some, seen)]
            for start in range(0, len(some), _TESTED):
                part = some[start : start + _TESTED]
                good = fitting.among(np.unique(self._rows.records.take(part)))
                found.append(part[np.isin(self._rows.records.take(part), good)])
                seen = np.concatenate((seen, part))
                fit = sum(map(len, found))
                if fit >= least:
                    return np.concatenate(found)
                few = fit * _FEW_FIT < len(seen) and fitting.is_repeated
                if few or least * len(seen) > fit * most:
                    return None
        return None

    def _rows_of(self, records: NDArray[np.int64]) -> Places:
        """The living rows of some records."""
        if not len(records):
            return np.empty(0, np.int64)
        mine = self._rows.records[: self._rows.size]
        wanted = np.zeros(max(int(records[-1]), int(mine.max(initial=0))) + 1, np.bool_)
        wanted[records] = True
        fits = wanted.take(mine)
        if self._alive is not None:
            fits &= self._alive
        return np.flatnonzero(fits)

    def _estimated(self, some: Places, count: int) -> Places:
        """Those of some rows with the best estimated scores, in no order."""
        if len(some) <= count:
            return some
        return some.take(_places_of_best(self._estimates(some), count))

    def _estimates(self, some: Places) -> Floats:
        check()
        return estimate(self._sketches.take(some), self._query)

    def _agreeing(self, count: int) -> Places:
        """About `count` of the rows that agree best, and never less than half; every row if there
        are not so many."""
        if self._differ is None:
            self._differ = differing(self._sketches.bits[: self._rows.size], self._query)
            if self._alive is not None:
                self._differ[~self._alive] = _REMOVED
        sample = self._differ[:: max(count // _SAMPLED, 1)]
        share = -(-count * len(sample) // self._rows.size)
        some = np.flatnonzero(self._differ <= _most_of_best(sample, share))
        if 2 * len(some) < count:
            some = np.flatnonzero(self._differ <= _most_of_best(self._differ, count))
        return some

    def _compared(self, places: Places, count: int) -> Best:
        """The best of some rows by their exact scores."""
        near, places, hashes = compared(self._rows, self._vector, places, self._read)
        near, order = _sorted(near, count)
        return near, places.take(order), hashes.take(order)


def compared(rows: Rows, vector: Floats, places: Places, read: Read | None) -> Best:
    """The exact scores of some rows, in order of their places; a row whose point no longer exists
    is left out."""
    exact, places = rows.exact, np.sort(places)
    if exact is not None:
        scores = products(exact.vectors.take(places, axis=0), vector)
        return scores, places, exact.hashes.take(places)
    assert read is not None
    points = rows.points.take(places)
    found = read(points.tolist())
    if not found:
        return np.empty(0, np.float32), places[:0], np.empty(0, HASH)
    there, hashes, vectors = zip(*found, strict=True)
    block = np.frombuffer(b"".join(vectors), "<f4").reshape(len(there), -1)
    places = places.take(np.searchsorted(points, np.asarray(there, np.int64)))
    return products(block, vector), places, np.frombuffer(b"".join(hashes), HASH)


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


def _most_of_best(differ: Counts, count: int) -> Any:
    """What the best so many do not exceed; no less than any living row's if there are not so
    many."""
    bound = np.partition(differ, count - 1)[count - 1] if count < len(differ) else _REMOVED
    return min(bound, _REMOVED - 1)


def _places_of_best(scores: Floats, count: int) -> Places:
    """The places of the largest scores, in order; of equal scores the first places."""
    least = _least_of_best(scores, count)
    found = np.flatnonzero(scores >= least)
    if (extra := len(found) - count) > 0:
        equal = np.flatnonzero(scores.take(found) == least)
        found = np.delete(found, equal[len(equal) - extra :])
    return found


def _sorted(scores: Floats, count: int) -> tuple[Floats, Places]:
    """The largest scores and their places, largest first. Equal ones are in order of their places,
    so that a search for more begins with the same."""
    if count < len(scores):
        places = _places_of_best(scores, count)
        scores = scores.take(places)
        order = (-scores).argsort(kind="stable")
        return scores.take(order), places.take(order)
    order = (-scores).argsort(kind="stable")
    return scores.take(order), order
