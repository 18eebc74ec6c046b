"""Vectors as rows of the store's own file, searched in memory.

Points are never changed in place: a new vector is a new row with a higher number, and a deleted row
leaves its number in a list of removals. So a process updates its memory by reading only what was
added since, whichever process wrote it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

from evervec.indexes.base import Held, Index, Matches, Query, StoredVector, Stray, by_version
from evervec.indexes.blocks import Blocks
from evervec.model.records import Change
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection, Values
from evervec.stores.sql.store import SqlStore
from evervec.stores.values import Applied, Collection

if TYPE_CHECKING:
    from evervec.indexes.filter_cache import Few, FittingCache
    from evervec.indexes.matrix import Matrix

_TOMBSTONE = b""
_AT_ONCE = 10_000
_FITTING_SHARE = 16
"""the results of filters may take one part in so many of the memory for vectors"""


class RowsIndex(Index):
    """Vectors in the store's own file; `apply` joins the store's transaction."""

    shares_store = True
    lists_changes: ClassVar[bool] = False
    """whether the store lists the records that were changed (`filter_cache`)"""
    sql: ClassVar[Queries]
    """those of `points.sql`, in the engine's dialect"""

    def __init__(self, store: SqlStore, cache_mb: int) -> None:
        self.url = store.url
        self.engine = store.engine
        self._db = store.engine.db
        self._blocks = Blocks(store.engine, self.sql, cache_mb << 20)
        self._fitting: FittingCache | None = None
        self._fitting_bytes = (cache_mb << 20) // _FITTING_SHARE

    def table(self, collection: Collection) -> str:
        return "evervec_points"

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
        wanted = self.engine.listed(change.record for change in changes)
        for record, hash, point, seq, _ in db.execute(self.sql.present, (wanted, version)):
            present[record][hash] = (point, seq)
        inserts: list[Values] = []
        kept: list[Values] = []
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
        self.engine.each(db, self.sql.keep_points, kept)
        numbers = self.engine.numbers(db, len(inserts))
        numbered = [(n, *row) for n, row in zip(numbers, inserts, strict=True)]
        self.engine.each(db, self.sql.insert_points, numbered)
        return applied

    def _remove(self, db: Connection, version: int, gone: Sequence[tuple[str, int]]) -> None:
        if not gone:
            return
        numbers, now = self.engine.numbers(db, len(gone)), self.engine.now()
        db.execute(self.sql.delete_points, (self.engine.listed(point for _, point in gone),))
        removals = [
            (n, version, tenant, point, now)
            for n, (tenant, point) in zip(numbers, gone, strict=True)
        ]
        self.engine.each(db, self.sql.add_removals, removals)

    def _matrix(self, query: Query) -> Matrix | None:
        mark = self.engine.mark() if query.mark is None else query.mark
        return self._blocks.fresh(query.version, query.tenant, mark)

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        matrix = self._matrix(query)
        return {} if matrix is None else matrix.similarities(query.vector, records)

    def search(self, query: Query) -> Matches:
        matrix = self._matrix(query)
        if matrix is None or not len(matrix):
            return Matches()
        fitting = self._fitting_cache().of(query) if query.conditions else None
        return matrix.nearest(query.vector, query.limit, fitting)

    def is_loaded(self, version: int, tenant: str) -> bool:
        return self._blocks.has(version, tenant)

    def _fitting_cache(self) -> FittingCache:
        if self._fitting is None:
            from evervec.indexes.filter_cache import FittingCache

            self._fitting = FittingCache(
                self.engine,
                self.sql,
                self._fitting_bytes,
                lists_changes=self.lists_changes,
                few=self._few(),
            )
        return self._fitting

    def _few(self) -> Few | None:
        """Finds records by the indexes of fields; None: the engine has no such indexes."""
        return None

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        import numpy as np

        with self._db.reading() as conn:
            rows = conn.execute(self.sql.vectors, (self.engine.listed(records), version)).fetchall()
        found: dict[int, list[StoredVector]] = defaultdict(list)
        for record, hash, position, vector in rows:
            found[record].append(StoredVector(hash, position, np.frombuffer(vector, "<f4")))
        return dict(found)

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
            wanted = (self.engine.listed({p.record for p in points}), version)
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
            rows = conn.execute(self.sql.strays, (self.engine.listed(known), tenant)).fetchall()
        return [Stray(*row) for row in rows]

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        for stray in strays:
            left = _AT_ONCE
            while left == _AT_ONCE:  # other writers can write in between
                with self._db.writing(durable=True) as db:
                    wanted = (stray.version, stray.tenant, _AT_ONCE)
                    left = len(db.execute(self.sql.drop_strays, wanted).fetchall())

    def maintain(self, before: float) -> None:
        """Write the sketches of large collections, so that other processes need not make them."""
        self._blocks.maintain()

    def close(self) -> None:
        self._blocks.clear()
        if self._fitting is not None:
            self._fitting.clear()


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
