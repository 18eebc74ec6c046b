"""Vectors of one collection and tenant in memory, for exact search.

Rows stay in order of their point number, so new ones are appended and gone ones are
found by bisection, marked, and squeezed out once they are many. Scores are one
matrix product.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evervec.model import Match

HASH = np.dtype("V16")


class Matrix:
    """A growing block of unit vectors with their point and record numbers and hashes."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._size = 0
        self._dead = 0
        self._vectors = np.empty((0, dimensions), np.float32)
        self._points = np.empty(0, np.int64)
        self._records = np.empty(0, np.int64)
        self._hashes = np.empty(0, HASH)
        self._alive = np.empty(0, np.bool_)

    def __len__(self) -> int:
        return self._size - self._dead

    @property
    def nbytes(self) -> int:
        return self._vectors.nbytes + len(self._points) * 33

    def append(
        self,
        points: Sequence[int],
        records: Sequence[int],
        hashes: Sequence[bytes],
        vectors: Sequence[bytes],
    ) -> None:
        """Add rows whose point numbers are larger than all before."""
        start, end = self._size, self._size + len(points)
        self._reserve(end)
        self._points[start:end] = points
        self._records[start:end] = records
        self._hashes[start:end] = np.frombuffer(b"".join(hashes), HASH)
        block = np.frombuffer(b"".join(vectors), "<f4")
        self._vectors[start:end] = block.reshape(len(points), self.dimensions)
        self._alive[start:end] = True
        self._size = end

    def discard(self, points: Sequence[int]) -> None:
        """Forget points; those that are not here do not matter."""
        wanted = np.asarray(points, np.int64)
        rows = np.searchsorted(self._points[: self._size], wanted)
        inside = rows < self._size
        rows, wanted = rows[inside], wanted[inside]
        rows = rows[(self._points[rows] == wanted) & self._alive[rows]]
        self._alive[rows] = False
        self._dead += len(np.unique(rows))
        if self._dead > 64 and self._dead * 4 > self._size:
            self._squeeze()

    def nearest(
        self,
        vector: NDArray[np.float32],
        limit: int,
        among: NDArray[np.int64] | None = None,
    ) -> list[Match]:
        """The best chunk of each of the `limit` nearest records, of those in `among` if given."""
        size, records, hashes = self._size, self._records, self._hashes
        scores = self._vectors[:size] @ vector
        if self._dead:
            scores[~self._alive[:size]] = -np.inf
        if among is not None:
            scores[~np.isin(records[:size], among)] = -np.inf
        take = limit
        while True:
            rows = _top(scores, take)
            found: dict[int, Match] = {}
            for row, record, score in zip(
                rows.tolist(), records[rows].tolist(), scores[rows].tolist(), strict=True
            ):
                if score == -np.inf:
                    return list(found.values())
                if record not in found:
                    found[record] = Match(record, hashes[row].tobytes(), score)
                    if len(found) == limit:
                        return list(found.values())
            if take >= size:
                return list(found.values())
            take *= 4

    def _reserve(self, size: int) -> None:
        if size > len(self._points):
            self._resize(max(size, len(self._points) * 3 // 2, 64), slice(0, self._size))

    def _squeeze(self) -> None:
        keep = np.flatnonzero(self._alive[: self._size])
        self._resize(max(len(keep) * 5 // 4, 64), keep)
        self._size, self._dead = len(keep), 0

    def _resize(self, capacity: int, keep: slice | NDArray[np.int64]) -> None:
        """New arrays rather than changed ones: a search may be reading the old."""
        for name in ("_vectors", "_points", "_records", "_hashes", "_alive"):
            old = getattr(self, name)
            kept = old[keep]
            new = np.empty((capacity, *old.shape[1:]), old.dtype)
            new[: len(kept)] = kept
            setattr(self, name, new)


def _top(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    if count < len(scores):
        rows = np.argpartition(scores, len(scores) - count)[len(scores) - count :]
    else:
        rows = np.arange(len(scores))
    return rows[np.lexsort((rows, -scores[rows]))]
