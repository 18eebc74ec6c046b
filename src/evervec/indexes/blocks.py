"""The vectors that a process holds in memory for search, kept up to date from the store's file.

A block has one tenant's vectors of one collection. What was added and removed since its last
search, by whichever process, is read before each search. The sketches of large blocks are also in
the file, in parts, so that a process begins with these (`sketch_parts`).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from evervec.model.deadlines import check, holding
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection, Engine

if TYPE_CHECKING:
    from evervec.indexes.matrix import Matrix
    from evervec.indexes.products import Floats
    from evervec.indexes.sketch_parts import Part

log = logging.getLogger("evervec")

_BLOCK_BYTES = 1024
"""of a block without vectors"""
_BATCH = 4096
_VECTORS_SHARE = 4
"""the vectors of one block may take one part in so many of the memory for all"""


class _Block:
    """One tenant's vectors of one collection, and up to where the file has been read."""

    def __init__(self) -> None:
        self.matrix: Matrix | None = None
        self.mark = -1
        self.upto = 0
        self.lock = threading.Lock()
        """held while the block is updated; searches of other blocks do not wait for it"""
        self.bytes = 0
        """at the last count"""


class Blocks:
    """The blocks of an index, the least recently searched of which are evicted."""

    def __init__(self, engine: Engine, sql: Queries, most_bytes: int) -> None:
        self._db = engine.db
        self._sql = sql
        self._listed = engine.listed
        self._most_bytes = most_bytes
        self._blocks: OrderedDict[tuple[int, str], _Block] = OrderedDict()
        self._bytes = 0
        """of all blocks"""
        self._damaged: set[int] = set()
        """the versions with sketches in the file that cannot be read"""
        self._too_few: dict[tuple[int, str], tuple[int, int]] = {}
        """of collections without vectors enough for a part, the last point that has a sketch, and
        the store's counter before which they are not read again"""
        self._lock = threading.Lock()

    def fresh(self, version: int, tenant: str, mark: int) -> Matrix | None:
        """The tenant's current vectors, whichever process wrote them."""
        key = (version, tenant)
        with self._lock:
            block = self._blocks.setdefault(key, _Block())
            self._blocks.move_to_end(key)
        with holding(block.lock):
            if block.mark == mark:
                return block.matrix
            with self._db.snapshot() as conn:
                upto, purged = conn.execute(self._sql.mark).fetchone()
                if block.upto < purged:  # the block may have missed a removal
                    block.matrix, block.upto = None, 0
                self._refresh(conn, block, version, tenant, purged)
                block.mark, block.upto = mark, upto
            matrix = block.matrix
        self._count(key, block)
        return matrix

    def has(self, version: int, tenant: str) -> bool:
        """Whether a block was read, and not evicted since."""
        with self._lock:
            block = self._blocks.get((version, tenant))
        return block is not None and block.mark >= 0

    def drop(self, version: int) -> None:
        self._drop_sketches(version)
        with self._lock:
            for key in [key for key in self._blocks if key[0] == version]:
                self._bytes -= self._blocks.pop(key).bytes

    def clear(self) -> None:
        with self._lock:
            self._blocks.clear()
            self._bytes = 0

    # reading
    def _refresh(
        self, conn: Connection, block: _Block, version: int, tenant: str, purged: int
    ) -> None:
        if block.matrix is None:
            matrix, upto = self._begin(conn, version, tenant, purged)
        else:
            # other threads use the old matrix: in between removals and additions it would be wrong
            matrix, upto = block.matrix.fork(), block.upto
            self._discard_removed(conn, matrix, version, tenant, block.upto)
        rows = conn.execute(self._sql.feed, (version, tenant, upto))
        try:
            while batch := rows.fetchmany(_BATCH):
                points, records, hashes, vectors = zip(*batch, strict=True)
                if matrix is None:
                    matrix = self._new_matrix(len(vectors[0]) // 4)
                matrix.append(points, records, hashes, vectors)
                upto = points[-1]
                check()
        finally:  # after a deadline, the next refresh continues from here
            block.matrix, block.upto = matrix, upto

    def _begin(
        self, conn: Connection, version: int, tenant: str, purged: int
    ) -> tuple[Matrix | None, int]:
        """The points of the file's sketches, and their last number."""
        from evervec.indexes import sketch_parts
        from evervec.indexes.sketch import Sketcher

        matrix: Matrix | None = None
        upto, oldest = 0, None
        parts = conn.execute(self._sql.sketch_parts, (version, tenant)).fetchall()
        for first, last, mark, data in parts:
            part = sketch_parts.Part.unpack(data)
            if part is None:
                log.warning("sketches of version %d are damaged: its vectors are read", version)
                self._damaged.add(version)
                return None, 0
            if mark < purged:
                part = self._without_removed(conn, part, version, tenant, first, last)
            elif oldest is None or mark < oldest:
                oldest = mark
            if matrix is None:
                matrix = self._new_matrix(len(part.mean))
                matrix.begin_sketched(Sketcher(part.mean), (len(parts) + 1) * sketch_parts.ROWS)
            matrix.append_sketches(part.points, part.records, part.sketches)
            upto = last
        if matrix is not None and oldest is not None:
            self._discard_removed(conn, matrix, version, tenant, oldest)
        return matrix, upto

    def _new_matrix(self, dimensions: int) -> Matrix:
        from evervec.indexes.matrix import Matrix

        return Matrix(dimensions, self._read, self._most_bytes // _VECTORS_SHARE)

    def _read(self, points: list[int]) -> list[tuple[int, bytes, bytes]]:
        with self._db.reading() as conn:
            found: list[tuple[int, bytes, bytes]] = conn.execute(
                self._sql.read_points, (self._listed(points),)
            ).fetchall()
        return found

    def _discard_removed(
        self, conn: Connection, matrix: Matrix, version: int, tenant: str, since: int
    ) -> None:
        gone = conn.execute(self._sql.removals, (version, tenant, since)).fetchall()
        matrix.discard([point for (point,) in gone])

    def _without_removed(
        self, conn: Connection, part: Part, version: int, tenant: str, first: int, last: int
    ) -> Part:
        """A part for which the list of removals is incomplete."""
        import numpy as np

        between = conn.execute(self._sql.points_between, (version, tenant, first, last)).fetchall()
        there = np.array([point for (point,) in between], np.int64)
        return part.take(np.flatnonzero(np.isin(part.points, there)))

    def _count(self, key: tuple[int, str], block: _Block) -> None:
        """Update a block's memory count, and evict the least recently used blocks."""
        with self._lock:
            if self._blocks.get(key) is not block:  # it was evicted in the meantime
                return
            size = _BLOCK_BYTES + (block.matrix.nbytes if block.matrix is not None else 0)
            self._bytes += size - block.bytes
            block.bytes = size
            while len(self._blocks) > 1 and self._bytes > self._most_bytes:
                _, gone = self._blocks.popitem(last=False)
                self._bytes -= gone.bytes

    # writing
    def maintain(self) -> None:
        """Write parts for the points that have none, in large collections, and write old parts
        again before they miss removals."""
        numbers = self._most_bytes // _VECTORS_SHARE // 4
        with self._db.reading() as conn:
            large = conn.execute(self._sql.large_collections, (numbers,)).fetchall()
            _, purged = conn.execute(self._sql.mark).fetchone()
            old = conn.execute(self._sql.old_sketches, (purged,)).fetchall()
        for version, tenant, first, last in old:
            self._renew_part(version, tenant, first, last)
        while self._damaged:
            self._drop_sketches(self._damaged.pop())
        for version, tenant in large:
            while self._add_part(version, tenant):
                pass

    def _add_part(self, version: int, tenant: str) -> bool:
        """Write the next part if there are points enough for it."""
        import numpy as np

        from evervec.indexes import sketch_parts
        from evervec.indexes.sketch import Sketcher, Sketches

        points, records, made = list[int](), list[int](), list[Sketches]()
        with self._db.snapshot() as conn:
            first = self._last_sketched(conn, version, tenant)
            mark, _ = conn.execute(self._sql.mark).fetchone()
            known_first, wait = self._too_few.get((version, tenant), (first, mark))
            if known_first == first and mark < wait:
                return False
            wanted = (version, tenant, first, sketch_parts.ROWS)
            (count,) = conn.execute(self._sql.count_part, wanted).fetchone()
            if count < sketch_parts.ROWS:
                return False
            begun = conn.execute(self._sql.sketched_mean, (version, tenant)).fetchone()
            known = sketch_parts.Part.unpack(begun[0]) if begun else None
            sketcher = Sketcher(known.mean if known else self._mean(conn, wanted))
            for some, of, block in self._vectors_of_part(conn, wanted):
                points += some
                records += of
                made.append(sketcher.sketch(block))
        if (missing := sketch_parts.ROWS - len(points)) > 0:  # the others have no vectors
            self._too_few[version, tenant] = first, mark + missing
            return False
        part = sketch_parts.Part(
            np.array(points, np.int64), np.array(records, np.int64), Sketches.joined(made),
            sketcher.mean,
        )  # fmt: skip
        with self._db.writing(durable=False) as conn:
            if self._last_sketched(conn, version, tenant) != first:
                return True  # another process wrote it
            row = (version, tenant, first, points[-1], mark, part.pack())
            conn.execute(self._sql.add_sketches, row)
        return True

    def _vectors_of_part(
        self, conn: Connection, wanted: tuple[int, str, int, int]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Floats]]:
        """Points, records and vectors, some at a time: all may take a gigabyte."""
        import numpy as np

        rows = conn.execute(self._sql.feed_part, wanted)
        while batch := rows.fetchmany(_BATCH):
            points, records, _, vectors = zip(*batch, strict=True)
            yield points, records, np.frombuffer(b"".join(vectors), "<f4").reshape(len(batch), -1)

    def _mean(self, conn: Connection, wanted: tuple[int, str, int, int]) -> Floats:
        import numpy as np

        count, total = 0, np.float64(0)
        for points, _, block in self._vectors_of_part(conn, wanted):
            count += len(points)
            total = total + block.sum(axis=0, dtype=np.float64)
        return np.asarray(total / max(count, 1), np.float32)

    def _renew_part(self, version: int, tenant: str, first: int, last: int) -> None:
        """Write a part again, without the points that were removed."""
        from evervec.indexes.sketch_parts import Part

        with self._db.writing(durable=False) as conn:
            found = conn.execute(self._sql.sketch_part, (version, tenant, last)).fetchone()
            if found is None:
                return
            part = Part.unpack(found[0])
            if part is None:
                self._damaged.add(version)
                return
            mark, _ = conn.execute(self._sql.mark).fetchone()
            part = self._without_removed(conn, part, version, tenant, first, last)
            conn.execute(self._sql.renew_sketches, (mark, part.pack(), version, tenant, last))

    def _drop_sketches(self, version: int) -> None:
        with self._db.writing(durable=False) as conn:
            conn.execute(self._sql.drop_sketches, (version,))

    def _last_sketched(self, conn: Connection, version: int, tenant: str) -> int:
        """The last point that has a sketch in the file, or 0."""
        found = conn.execute(self._sql.last_sketched, (version, tenant)).fetchone()
        return found[0] if found else 0
