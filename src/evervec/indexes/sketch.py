"""Sketches: one bit per dimension of a vector, to find the few vectors that are worth an exact
comparison.

A million vectors of 384 take 1.5 GB, and reading them takes 90 ms; their sketches take 56 MB, and
4 ms. The bits are the signs of the vector after its collection's mean was subtracted (embeddings of
many models point in a common direction) and after a rotation (a model may put little into single
dimensions). How many bits differ from the query's gives a rough order of all vectors. A second step
chooses which of the best to compare exactly: the product of the query with the bits, scaled by what
the bits lost of the vector's length, estimates the score (RaBitQ's estimator). Here each of the
query's numbers has four bits, so that the product is made of four counts of bits that differ.

With the mean m, the score of a unit vector v and a query q is
(q - m)·(v - m) - |v - m|²/2, and numbers that are the same for all vectors.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.products import Floats
from evervec.model.deadlines import check

Bits = NDArray[np.uint8]
Counts = NDArray[np.float32] | NDArray[np.float64]

_ROUNDS = 3
_ROWS = 1 << 14
"""rows that are sketched or compared at once"""
_PLACES = np.array([3, 2, 1, 0], np.uint8)
"""of the bits of a query's number"""
_PLACE_VALUES = np.array([8, 4, 2, 1], np.float32)
_HALF = 8
"""of the steps of a query's number"""
_TINY = 1e-30

simsimd: Any
try:
    import simsimd
except ImportError:  # no wheel for this machine
    simsimd = None


class Sketches(NamedTuple):
    """The sketches of some vectors."""

    bits: Bits
    scale: Floats
    """of each vector, what the product with its bits is multiplied by"""
    offset: Floats
    """of each vector, what is then added"""

    @classmethod
    def empty(cls, count: int, dimensions: int) -> Sketches:
        bits = np.empty((count, -(-dimensions // 8)), np.uint8)
        return cls(bits, np.empty(count, np.float32), np.empty(count, np.float32))

    def put(self, where: slice, others: Sketches) -> None:
        self.bits[where], self.scale[where], self.offset[where] = others

    def take(self, places: NDArray[np.int64]) -> Sketches:
        return Sketches(
            self.bits.take(places, axis=0), self.scale.take(places), self.offset.take(places)
        )


class Query(NamedTuple):
    """A query's vector, prepared for comparisons with sketches."""

    planes: Bits
    """Its distance from the mean, rotated, as whole numbers of steps: the first bits of all of them,
    which are the signs, then the second, and so on."""
    values: Floats
    """of each plane, how much a bit that differs takes from the product with a sketch's bits"""
    most: float
    """the product with a sketch of which no bit differs from any plane"""


class Sketcher:
    """Makes the sketches of one collection's vectors; those of another mean are not comparable."""

    def __init__(self, mean: Floats) -> None:
        self.mean = mean
        self._turned_mean = _turned(mean[None])

    @classmethod
    def of(cls, sample: Floats) -> Sketcher:
        """For vectors like those of the sample."""
        return cls(sample.mean(axis=0, dtype=np.float64).astype(np.float32))

    def sketch(self, vectors: Floats) -> Sketches:
        made = Sketches.empty(*vectors.shape)
        for start in range(0, len(vectors), _ROWS):
            check()
            some = slice(start, start + _ROWS)
            turned = _turned(vectors[some]) - self._turned_mean
            made.bits[some] = np.packbits(turned >= 0, axis=1)
            sums = np.abs(turned).sum(axis=1)
            squares = np.einsum("ij,ij->i", turned, turned)
            made.scale[some] = squares / np.maximum(sums, _TINY)
            made.offset[some] = squares / -2
        return made

    def query(self, vector: Floats) -> Query:
        turned = (_turned(vector[None]) - self._turned_mean)[0]
        # a little more than the largest needs, so that it is in the last step
        step = max(float(np.abs(turned).max()) * 1.0001, _TINY) / _HALF
        # a number is taken for the middle of its step
        steps = (turned * np.float32(1 / step) + _HALF).astype(np.uint8)
        values = _PLACE_VALUES * np.float32(step)
        most = float(values.sum()) * len(turned) / 2
        return Query(np.packbits(steps >> _PLACES[:, None] & 1, axis=1), values, most)


def differing(bits: Bits, query: Query) -> Counts:
    """How many bits of each sketch differ from the query's."""
    signs = query.planes[:1]
    if simsimd is None:
        return _count_differing(bits, signs)[:, 0]
    # one call, which releases the GIL once; of each row with one, `hamming` is faster than `cdist`
    return np.asarray(simsimd.hamming(bits, signs, "bin8"), np.float64).reshape(len(bits))


def estimate(sketches: Sketches, query: Query) -> Floats:
    """The scores of vectors with the query, estimated, but for a number that is the same for all."""
    bits, scale, offset = sketches
    if simsimd is None:
        differ = _count_differing(bits, query.planes)
    else:
        differ = np.empty((len(bits), len(query.planes)), np.float32)
        simsimd.cdist(bits, query.planes, "hamming", dtype="bin8", out=differ, out_dtype="float32")
    return (query.most - differ @ query.values) * scale + offset


def _count_differing(bits: Bits, others: Bits) -> Floats:
    """For machines without simsimd: how many bits of each row differ from each of the others."""
    differ = np.empty((len(bits), len(others)), np.float32)
    for start in range(0, len(bits), _ROWS):
        some = slice(start, start + _ROWS)
        for place, other in enumerate(others):
            differ[some, place] = _ONES[bits[some] ^ other].sum(axis=1, dtype=np.float32)
    return differ


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def _turned(vectors: Floats) -> Floats:
    """The vectors after a rotation that is the same in every process: in turns, signs are changed
    and the first or last dimensions are mixed by a Hadamard matrix."""
    size = vectors.shape[1]
    mixed = 1 << (size.bit_length() - 1)
    turned = np.array(vectors, np.float32)
    for round, signs in enumerate(_signs(size)):
        turned *= signs
        part = slice(size - mixed, size) if round % 2 else slice(0, mixed)
        turned[:, part] = _mixed(turned[:, part])
    return turned


def _mixed(vectors: Floats) -> Floats:
    """Products with a Hadamard matrix, which is the Kronecker product of two small ones."""
    count, size = vectors.shape
    left = 1 << (size.bit_length() - 1) // 2
    parts = vectors.reshape(count, left, size // left)
    mixed = np.asarray(_hadamard(left) @ parts @ _hadamard(size // left), np.float32)
    return mixed.reshape(count, size)


@lru_cache
def _hadamard(size: int) -> Floats:
    """An orthogonal matrix of equal absolute values; `size` is a power of two."""
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return np.asarray(matrix / size**0.5, np.float32)


@lru_cache
def _signs(size: int) -> list[Floats]:
    drawn = shake_256(b"evervec sketch").digest(_ROUNDS * -(-size // 8))
    bits = np.unpackbits(np.frombuffer(drawn, np.uint8).reshape(_ROUNDS, -1), axis=1, count=size)
    return list(2 * bits.astype(np.float32) - 1)
