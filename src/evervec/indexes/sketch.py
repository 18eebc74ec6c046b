"""Sketches: one bit per dimension of a vector, to find the few vectors that are worth an exact
comparison.

A million vectors of 384 take 1.5 GB, and reading them takes 90 ms; their sketches take 52 MB, and
5 ms. The bits are the signs of the vector after its collection's mean was subtracted (embeddings of
many models point in a common direction) and after a rotation (a model may put little into single
dimensions). How many bits agree with the query's gives a rough order of all vectors. If the vectors
are not in memory, a second step chooses which to read: for the best of the first, the product of
the query with the bits, scaled by what the bits lost of the vector's length, estimates the score
(RaBitQ's estimator).

With the mean m, the score of a unit vector v and a query q is
(q - m)·(v - m) - |v - m|²/2, and numbers that are the same for all vectors.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import shake_256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.products import Floats, products
from evervec.model.deadlines import check

Bits = NDArray[np.uint8]

_ROUNDS = 3
_ROWS = 1 << 14
"""rows that are sketched or compared at once"""

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

    bits: Bits
    turned: Floats
    """its distance from the mean, rotated"""


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
            made.bits[some] = np.packbits(turned > 0, axis=1)
            sums = np.abs(turned).sum(axis=1)
            squares = np.einsum("ij,ij->i", turned, turned)
            made.scale[some] = squares / np.maximum(sums, np.finfo(np.float32).tiny)
            made.offset[some] = squares / -2
        return made

    def query(self, vector: Floats) -> Query:
        turned = _turned(vector[None]) - self._turned_mean
        return Query(np.packbits(turned > 0, axis=1), turned[0])


def agreement(bits: Bits, query: Query) -> Floats:
    """How many bits of each sketch agree with the query's."""
    if simsimd is None:
        return _count_agreement(bits, query)
    # the distance to the opposite of the query's bits; one call, which releases the GIL once
    agree = np.empty((len(bits), 1), np.float32)
    simsimd.cdist(bits, ~query.bits, "hamming", dtype="bin8", out=agree, out_dtype="float32")
    return agree[:, 0]


def estimate(sketches: Sketches, query: Query) -> Floats:
    """The scores of vectors with the query, estimated, but for a number that is the same for all."""
    size = len(query.turned)
    total = float(query.turned.sum())
    scores = np.empty(len(sketches.bits), np.float32)
    for start in range(0, len(scores), _ROWS):
        some = slice(start, start + _ROWS)
        signs = np.unpackbits(sketches.bits[some], axis=1, count=size)
        scores[some] = products(signs.astype(np.float32), query.turned)
    return (2 * scores - total) * sketches.scale + sketches.offset


def _count_agreement(bits: Bits, query: Query) -> Floats:
    agree = np.empty(len(bits), np.float32)
    for start in range(0, len(bits), _ROWS):
        some = slice(start, start + _ROWS)
        agree[some] = _ONES[bits[some] ^ ~query.bits].sum(axis=1, dtype=np.float32)
    return agree


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
