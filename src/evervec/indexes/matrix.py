"""The vectors of one collection and tenant in memory.

Rows are in order of their point number, so new rows are appended, and removed rows are found by
bisection, marked, and compacted once they are many. `scores` finds the nearest. Vectors that take
more memory than they may are not kept: those that a search compares are then read from the store's
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.base import Matches
from evervec.indexes.products import Floats
from evervec.indexes.scores import (
    HASH,
    Exact,
    FittingRecords,
    Places,
    Read,
    Rows,
    Sketched,
    Vectors,
    compared,
)
from evervec.indexes.sketch import Sketcher, Sketches
from evervec.model.deadlines import check
from evervec.stores.among import places_among

_AT_ONCE = 1024
"""rows of given records that are compared at once"""
_MANY = 4_000_000
"""count of numbers above which vectors are compared by their sketches first"""


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
        self._rows = Rows(
            0,
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            np.empty(0, np.bool_),
            Vectors(np.empty((0, dimensions), np.float32), np.empty(0, HASH)),
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

    def begin_sketched(self, sketcher: Sketcher, count: int) -> None:
        """Keep only sketches of vectors, in an empty matrix with room for so many rows."""
        self.sketcher = sketcher
        none = Sketches.empty(0, self.dimensions)
        self._rows = self._rows._replace(exact=None, sketches=none).resized(count, slice(0, 0))

    def append_sketches(
        self, points: NDArray[np.int64], records: NDArray[np.int64], sketches: Sketches
    ) -> None:
        """Add rows after `begin_sketched`."""
        rows, new = self._with_room(points, records)
        assert rows.sketches is not None
        rows.sketches.put(new, sketches)
        self._rows = rows._replace(size=new.stop)

    def _with_room(
        self, points: Sequence[int] | Places, records: Sequence[int] | Places
    ) -> tuple[Rows, slice]:
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

    def nearest(self, vector: Floats, limit: int, fitting: FittingRecords | None = None) -> Matches:
        """The best chunk of each of the `limit` nearest records, of those that fit if `fitting` is
        given."""
        rows, alive = self._rows, None
        if self._dead:
            alive = rows.alive[: rows.size]
        scores: Exact | Sketched
        if self.sketcher is None:
            scores = Exact(rows, vector, alive, fitting)
        else:
            scores = Sketched(rows, vector, alive, fitting, self.sketcher, self._read)
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

    def similarities(self, vector: Floats, records: Sequence[int]) -> dict[int, float]:
        """The cosine of the best chunk of each of these records that is here."""
        rows = self._rows
        found: dict[int, float] = {}
        wanted = np.array(sorted(records), np.int64)
        places = places_among(rows.records[: rows.size], wanted)
        places = places[rows.alive[places]]
        for start in range(0, len(places), _AT_ONCE):
            check()
            some = places[start : start + _AT_ONCE]
            scores, some, _ = compared(rows, vector, some, self._read)
            for record, score in zip(
                rows.records.take(some).tolist(), scores.tolist(), strict=True
            ):
                if score > found.get(record, -np.inf):
                    found[record] = score
        return found


class _Hashes(Sequence[bytes]):
    """Hashes, converted on access: few searches need them."""

    def __init__(self, hashes: NDArray[np.void]) -> None:
        self._hashes = hashes

    def __len__(self) -> int:
        return len(self._hashes)

    def __getitem__(self, place: Any) -> Any:
        return self._hashes[place].tobytes()
