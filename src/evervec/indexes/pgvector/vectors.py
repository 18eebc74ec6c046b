"""Vectors in the forms in which pgvector reads them fastest."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evervec.stores.postgres.packed_lists import Packed


def pack_vector(vector: NDArray[np.float32]) -> Packed:
    return Packed(struct.pack(">hh", len(vector), 0) + vector.astype(">f4").tobytes())


def unpack_vector(sent: bytes) -> NDArray[np.float32]:
    """A vector as `vector_send` gives it."""
    return np.frombuffer(sent, ">f4", offset=4).astype(np.float32)


def vector_text(vector: NDArray[np.float32]) -> str:
    return "[" + ",".join(map(repr, vector.tolist())) + "]"


def pack_vectors(
    vectors: Sequence[NDArray[np.float32]] | NDArray[np.float32], element: int
) -> Packed:
    """Vectors of one length as an array of the type `vector`, whose OID is `element`."""
    size = len(vectors[0])
    fields = [("bytes", ">i4"), ("size", ">i2"), ("unused", ">i2"), ("vector", ">f4", (size,))]
    rows = np.zeros(len(vectors), np.dtype(fields))
    rows["bytes"], rows["size"] = 4 + 4 * size, size
    rows["vector"] = np.asarray(vectors)
    return Packed(struct.pack(">iiIii", 1, 0, element, len(vectors), 1) + rows.tobytes())
