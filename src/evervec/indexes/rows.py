"""Vectors as rows of the store's own file, searched in memory.

Points are never changed in place: a new vector is a new row with a higher number, and a deleted row
leaves its number in a list of removals. So a process updates its memory by reading only what was
added since, whichever process wrote it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from evervec.indexes.base import Held, Index, Matches, Query, Stray, by_version
from evervec.indexes.blocks import Blocks
from evervec.model.filters import Conditions
from evervec.model.records import Change
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection, Database
from evervec.stores.values import Applied, Collection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Rows = list[tuple[Any, ...]]
_TOMBSTONE = b""
_AT_ONCE = 10_000


class RowsIndex(Index, ABC):
    """Vectors in the store's own file; `apply` joins the store's transaction. An engine provides
    the queries, and how to write many rows at once."""

    shares_store = True
    sql: Queries

    def __init__(self, db: Database, name: str, clock: Any, cache_mb: int) -> None:
        self.url = name
        self._db = db
        self._clock = clock
        self._blocks = Blocks(db, self.sql, self.listed, cache_mb << 20)

    def table(self, collection: Collection) -> str:
        return "evervec_points"

    @abstractmethod
    def take_numbers(self, db: Connection, wanted: int) -> range:
        """New numbers of the store's counter."""

    @abstractmethod
    def write(self, db: Connection, query: str, rows: Rows) -> None:
        """Execute a query for each row."""

    @abstractmethod
    def listed(self, values: Iterable[Any]) -> Any:
        """Values as one parameter of a query."""

    @abstractmethod
    def filter_clause(self, conditions: Conditions, taken: int) -> tuple[str, list[Any]]:
        """A clause to add to a query that has so many parameters, and its own."""

    @abstractmethod
    def mark(self) -> int:
        """The store's mark."""

    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied:
        applied = Applied()
        context = nullcontext(conn) if conn is not None else self._db.writing(durable=True)
        with context as db:
            for version, group in by_version(changes):
                applied.add(self._apply(db, version, group, guarded=conn is None))
        return applied

    def _apply(
        self, db: Connection, version: int, changes: list[Change], *, guarded: bool
    ) -> Applied:
        """`guarded`: the caller has not checked that the changes are the latest."""
        present: dict[int, dict[bytes, tuple[int, int]]] = defaultdict(dict)
        wanted = self.listed(change.record for change in changes)
        for record, hash, point, seq, _ in db.execute(self.sql.present, (wanted, version)):
            present[record][hash] = (point, seq)
        inserts: Rows = []
        kept: Rows = []
        gone: list[tuple[str, int]] = []
        applied = Applied()
        for c in changes:
            there = present.get(c.record, {})
            if there:
                latest = max(seq for _, seq in there.values())
                if guarded and latest > c.seq:  # a newer write or removal exists
                    applied.newer[version, c.record] = latest
                    continue
                gone += [(c.tenant, there[h][0]) for h in there if h not in c.kept]
                kept += [(c.seq, place, there[h][0]) for h, place in c.kept.items() if h in there]
            if c.kept and not c.kept.keys() <= there.keys():
                applied.missing.add((version, c.record))
            inserts += [
                (version, c.tenant, c.record, c.seq, p.position, p.hash, p.vector.tobytes())
                for p in c.points
            ]
            if not c.points and not c.kept:
                inserts.append((version, c.tenant, c.record, c.seq, 0, _TOMBSTONE, None))
        self._remove(db, version, gone)
        if kept:
            self.write(db, self.sql.keep_point, kept)
        if inserts:
            numbers = self.take_numbers(db, len(inserts))
            numbered = [(n, *row) for n, row in zip(numbers, inserts, strict=True)]
            self.write(db, self.sql.insert_point, numbered)
        return applied

    def _remove(self, db: Connection, version: int, gone: Sequence[tuple[str, int]]) -> None:
        if not gone:
            return
        numbers, now = self.take_numbers(db, len(gone)), self._clock()
        self.write(db, self.sql.delete_point, [(point,) for _, point in gone])
        removals = [
            (n, version, tenant, point, now)
            for n, (tenant, point) in zip(numbers, gone, strict=True)
        ]
        self.write(db, self.sql.add_removal, removals)

    def search(self, query: Query) -> Matches:
        mark = self.mark() if query.mark is None else query.mark
        matrix = self._blocks.fresh(query.version, query.tenant, mark)
        if matrix is None or not len(matrix):
            return Matches()
        fitting = _Fitting(self, query) if query.conditions else None
        return matrix.nearest(query.vector, query.limit, fitting)

    def filtered(self, query: str, values: list[Any], conditions: Conditions) -> Any:
        """Records of a query that fit a filter, as an array."""
        import numpy as np

        clause, more = self.filter_clause(conditions, len(values))
        with self._db.reading() as conn:
            rows = conn.execute(query + clause, [*values, *more]).fetchall()
        return np.array([record for (record,) in rows], np.int64)

    # verify
    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        with self._db.reading() as conn:
            rows = conn.execute(self.sql.held, (after, upto, version, tenant)).fetchall()
        sound = _of_length_one([vector for *_, vector in rows])
        return [
            Held(record, owner, hash, seq, point, good)
            for (record, owner, hash, seq, point, _), good in zip(rows, sound, strict=True)
        ]

    def remove(self, version: int, points: Sequence[Held]) -> int:
        with self._db.writing(durable=True) as db:
            wanted = (self.listed({p.record for p in points}), version)
            there = {
                (point, record, tenant, hash, seq)
                for record, hash, point, seq, tenant in db.execute(self.sql.present, wanted)
            }
            gone = {
                (p.tenant, p.key)
                for p in points
                if (p.key, p.record, p.tenant, p.hash, p.seq) in there
            }
            self._remove(db, version, sorted(gone))
        return len(gone)

    def drop(self, version: int) -> None:
        gone = -1
        while gone:  # in slices, so that other writers do not wait long
            with self._db.writing(durable=False) as db:
                gone = db.execute(self.sql.drop_points, (version, _AT_ONCE)).rowcount
                gone += db.execute(self.sql.drop_removals, (version, _AT_ONCE)).rowcount
        self._blocks.drop(version)

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        with self._db.reading() as conn:
            rows = conn.execute(self.sql.strays, (self.listed(known), tenant)).fetchall()
        return [Stray(*row) for row in rows]

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        for stray in strays:
            left = _AT_ONCE
            while left == _AT_ONCE:  # other writers can write in between
                with self._db.writing(durable=True) as db:
                    wanted = (stray.version, stray.tenant, _AT_ONCE)
                    left = len(db.execute(self.sql.drop_strays, wanted).fetchall())

    def tend(self, before: float) -> None:
        """Write the sketches of large collections, so that other processes need not make them."""
        self._blocks.tend()

    def close(self) -> None:
        self._blocks.clear()


class _Fitting:
    """The records of one collection and tenant that fit a filter."""

    def __init__(self, index: RowsIndex, query: Query) -> None:
        self._index = index
        self._collection = [query.tenant, query.version]
        self._conditions = query.conditions

    def all(self) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._index.filtered(
            self._index.sql.filtered, self._collection, self._conditions
        )
        return found

    def among(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        values = [self._index.listed(records.tolist()), *self._collection]
        found: NDArray[np.int64] = self._index.filtered(
            self._index.sql.filtered_among, values, self._conditions
        )
        return found


def _of_length_one(vectors: Sequence[bytes | None]) -> list[bool]:
    """Which vectors are as they were written; None stands for one of a wrong size."""
    import numpy as np

    good = [vector is not None for vector in vectors]
    if any(good):
        rows = np.frombuffer(b"".join(filter(None, vectors)), "<f4").reshape(sum(good), -1)
        with np.errstate(all="ignore"):
            lengths = iter((np.abs(np.einsum("ij,ij->i", rows, rows) - 1) < 0.01).tolist())
        good = [fits and next(lengths) for fits in good]
    return good
