"""The vectors of one collection and tenant in memory, for exact search.

Rows are in order of their point number, so new rows are appended, and removed rows are found by
bisection, marked, and compacted once they are many. Scores are one matrix product, in the searching
thread: BLAS would spread it over all cores, and concurrent searches would then wait for each
other's threads. If there are many vectors, those that cannot be among the nearest are excluded
first (`coarse`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.indexes import coarse
from evervec.indexes.base import Matches
from evervec.model.deadlines import check

HASH = np.dtype("V16")
_SMALL = 400_000
"""Numbers up to which OpenBLAS multiplies in one thread, and a little faster than `vecdot`. With
100,000 vectors of 256, on 2 cores: `@` 6.3 ms, with one BLAS thread 14 ms, `vecdot` 3.3 ms."""
_ROWS = 1 << 15
"""rows between two checks of the deadline"""
_MANY = 4_000_000
"""count of numbers above which vectors are also kept rounded"""
_MOST_EXACT = 8
"""if more than one in so many must be compared exactly, all are: sequential reads are faster"""
_SPARSE = 64
"""if there are so many times more scores than wanted, a lower bound is computed first"""


class _Rows(NamedTuple):
    """The arrays, with spare capacity behind `size`. A search keeps the arrays it started with,
    even if rows are appended or compacted into new arrays in the meantime."""

    size: int
    vectors: NDArray[np.float32]
    points: NDArray[np.int64]
    records: NDArray[np.int64]
    hashes: NDArray[np.void]
    alive: NDArray[np.bool_]
    codes: NDArray[np.int8]
    steps: NDArray[np.float32]
    """the rounded form; its rows are empty if there are few vectors"""

    def resized(self, capacity: int, keep: slice | NDArray[np.int64]) -> _Rows:
        arrays = []
        size = 0
        for old in self[1:]:
            kept = old[keep]
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: len(kept)] = kept
            arrays.append(new)
            size = len(kept)
        return _Rows(size, *arrays)

    @property
    def is_rounded(self) -> bool:
        return bool(self.codes.shape[1])

    def round(self, start: int, end: int) -> float:
        """Round rows; returns the largest rounding error of a row."""
        lost = 0.0
        for first in range(start, end, _ROWS):
            some = slice(first, min(first + _ROWS, end))
            self.codes[some], self.steps[some], off = coarse.rounded(self.vectors[some])
            lost = max(lost, off)
        return lost


class Matrix:
    """A growing block of unit vectors with their point and record numbers and hashes."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._dead = 0
        self._lost = 0.0
        self._rows = _Rows(
            0,
            np.empty((0, dimensions), np.float32),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, HASH),
            np.empty(0, np.bool_),
            np.empty((0, 0), np.int8),
            np.empty(0, np.float32),
        )

    def fork(self) -> Matrix:
        """A copy that can be changed while other threads search this one. Only the latest fork may
        be changed."""
        other = Matrix(self.dimensions)
        other._dead, other._lost = self._dead, self._lost
        other._rows = self._rows._replace(alive=self._rows.alive.copy())
        return other

    def __len__(self) -> int:
        return self._rows.size - self._dead

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self._rows[1:])

    def append(
        self,
        points: Sequence[int],
        records: Sequence[int],
        hashes: Sequence[bytes],
        vectors: Sequence[bytes],
    ) -> None:
        """Add rows whose point numbers are larger than all before."""
        rows = self._rows
        start, end = rows.size, rows.size + len(points)
        if end > len(rows.points):
            rows = rows.resized(max(end, len(rows.points) * 3 // 2, 64), slice(0, start))
        rows.points[start:end] = points
        rows.records[start:end] = records
        rows.hashes[start:end] = np.frombuffer(b"".join(hashes), HASH)
        block = np.frombuffer(b"".join(vectors), "<f4")
        rows.vectors[start:end] = block.reshape(len(points), self.dimensions)
        rows.alive[start:end] = True
        if rows.is_rounded:
            self._lost = max(self._lost, rows.round(start, end))
        elif end * self.dimensions >= _MANY and coarse.simsimd:
            rows = rows._replace(codes=np.empty((len(rows.points), self.dimensions), np.int8))
            self._lost = rows.round(0, end)
        self._rows = rows._replace(size=end)

    def discard(self, points: Sequence[int]) -> None:
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

    def nearest(
        self,
        vector: NDArray[np.float32],
        limit: int,
        among: NDArray[np.int64] | None = None,
    ) -> Matches:
        """The best chunk of each of the `limit` nearest records, of those in `among` if given."""
        rows, some_dead = self._rows, self._dead > 0
        size, lost = rows.size, self._lost  # never less than the error of these rows
        scores = _Coarse(rows, vector, lost) if rows.is_rounded else _Exact(rows, vector)
        if some_dead:
            scores.leave_out(~rows.alive[:size])
        if among is not None:
            scores.leave_out(~np.isin(rows.records[:size], among))
        take = limit
        while True:
            near, places = scores.best(take)
            if some_dead or among is not None:
                count = np.count_nonzero(near > -np.inf)
                near, places = near[:count], places[:count]
            records = rows.records.take(places).tolist()
            all_seen = len(records) < take or take >= size
            if len(set(records)) < len(records):  # several chunks of one record: keep the best
                firsts = dict(zip(reversed(records), range(len(records) - 1, -1, -1), strict=True))
                best = sorted(firsts.values())[:limit]
                near, places = near[best], places[best]
                records = rows.records.take(places).tolist()
            if all_seen or len(records) >= limit:
                return Matches(records, near.tolist(), _Hashes(rows.hashes, places))
            take *= 4


class _Exact:
    """The scores of all rows."""

    def __init__(self, rows: _Rows, vector: NDArray[np.float32]) -> None:
        self._scores = _products(rows.vectors[: rows.size], vector)

    def leave_out(self, these: NDArray[np.bool_]) -> None:
        self._scores[these] = -np.inf

    def best(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The largest scores and their places, largest first."""
        return _top(self._scores, count)


class _Coarse:
    """Rough scores of all rows, and exact scores of those that may be the best."""

    def __init__(self, rows: _Rows, vector: NDArray[np.float32], lost: float) -> None:
        check()
        size = rows.size
        self._vectors, self._vector = rows.vectors[:size], vector
        codes = (rows.codes[:size], rows.steps[:size], lost)
        self._scores, self._off = coarse.rough_scores(codes, vector)

    def leave_out(self, these: NDArray[np.bool_]) -> None:
        self._scores[these] = -np.inf

    def best(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The largest scores and their places, largest first."""
        least = max(_bound(self._scores, count) - 2 * self._off, np.finfo(np.float32).min)
        some = np.flatnonzero(self._scores >= least)
        if len(some) * _MOST_EXACT > len(self._scores):
            scores = _products(self._vectors, self._vector)
            scores[self._scores == -np.inf] = -np.inf
            return _top(scores, count)
        near, places = _sorted(_products(self._vectors[some], self._vector), count)
        return near, some.take(places)


class _Hashes(Sequence[bytes]):
    """Some of the hashes, read on access: few searches need them."""

    def __init__(self, all: NDArray[np.void], places: NDArray[np.int64]) -> None:
        self._all = all
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: Any) -> Any:
        return self._all[self._places[place]].tobytes()


def _products(vectors: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    """The product of each row with a vector."""
    if vectors.size <= _SMALL:
        return np.asarray(vectors @ vector)
    scores = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), _ROWS):
        check()
        _row_products(vectors[start : start + _ROWS], vector, scores[start : start + _ROWS])
    return scores


if hasattr(np, "vecdot"):

    def _row_products(
        rows: NDArray[np.float32], vector: NDArray[np.float32], out: NDArray[np.float32]
    ) -> None:
        np.vecdot(rows, vector, out=out)

else:  # before NumPy 2

    def _row_products(
        rows: NDArray[np.float32], vector: NDArray[np.float32], out: NDArray[np.float32]
    ) -> None:
        np.einsum("ij,j->i", rows, vector, out=out)


def _top(scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The largest scores and their places, largest first."""
    if count * _SPARSE < len(scores):
        some = np.flatnonzero(scores >= _bound(scores, count))
        near, places = _sorted(scores.take(some), count)
        return near, some.take(places)
    return _sorted(scores, count)


def _bound(scores: NDArray[np.float32], count: int) -> Any:
    """A score that at least `count` reach, and not many more."""
    groups = 4 * count
    if groups * 2 > len(scores):
        return np.partition(scores, -count)[-count] if count < len(scores) else -np.inf
    # the best of each group: at least `count` scores reach the bound of these
    best = scores[: len(scores) // groups * groups].reshape(groups, -1).max(axis=1)
    return np.partition(best, groups - count)[groups - count]


def _sorted(
    scores: NDArray[np.float32], count: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    if count < len(scores):
        places = scores.argpartition(len(scores) - count)[len(scores) - count :]
        scores = scores.take(places)
        order = scores.argsort()[::-1]
        return scores.take(order), places.take(order)
    order = scores.argsort()[::-1]
    return scores.take(order), order
