"""Sketches in the store's file, in parts, so that a process need not read all vectors to begin.

A part has the sketches of the points from one number to another that existed at one mark of the
store. Points are never changed in place, so a part stays right but for points that were removed
since. It is written in the store's own transactions: a crash, a backup or a restore cannot bring it
out of step with the points.
"""

from __future__ import annotations

import struct
from typing import NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.products import Floats
from evervec.indexes.sketch import Sketches, as_bytes, from_bytes

ROWS = 1 << 16
"""points of a part"""
_HEAD = struct.Struct("<4sIII")
"""format, dimensions, rows, checksum"""
_FORMAT = b"evs1"


class Part(NamedTuple):
    """The points of one part, in order of their numbers."""

    points: NDArray[np.int64]
    records: NDArray[np.int64]
    sketches: Sketches
    mean: Floats
    """of the vectors for which the sketches were made"""

    def take(self, places: NDArray[np.int64]) -> Part:
        return Part(
            self.points[places], self.records[places], self.sketches.take(places), self.mean
        )

    def pack(self) -> bytes:
        bits, scale, offset = self.sketches
        rows = as_bytes(bits, len(self.mean))
        arrays = (self.points, self.records, rows, scale, offset, self.mean)
        data = b"".join(array.tobytes() for array in arrays)
        return _HEAD.pack(_FORMAT, len(self.mean), len(self.points), crc32(data)) + data

    @classmethod
    def unpack(cls, packed: bytes) -> Part | None:
        """None: the part is damaged, or of another format."""
        if len(packed) < _HEAD.size:
            return None
        format, dimensions, rows, checksum = _HEAD.unpack_from(packed)
        data = memoryview(packed)[_HEAD.size :]
        if format != _FORMAT or crc32(data) != checksum:
            return None
        width = -(-dimensions // 8)
        arrays = []
        for kind, shape in (
            ("<i8", (rows,)), ("<i8", (rows,)), ("u1", (rows, width)), ("<f4", (rows,)),
            ("<f4", (rows,)), ("<f4", (dimensions,)),
        ):  # fmt: skip
            count = int(np.prod(shape))
            array = np.frombuffer(data, kind, count).reshape(shape)
            data = data[array.nbytes :]
            arrays.append(array)
        points, records, bits, scale, offset, mean = arrays
        return cls(points, records, Sketches(from_bytes(bits), scale, offset), mean)
