"""Sketches: one bit per dimension of a vector, to find the few vectors that are worth an exact
comparison.

A million vectors of 384 take 1.5 GB, and reading them takes 90 ms; their sketches take 56 MB, and
3 ms. The bits are the signs of the vector after its collection's mean was subtracted (embeddings of
many models point in a common direction) and after a rotation (a model may put little into single
dimensions). How many bits differ from the query's gives a rough order of all vectors. A second step
chooses which of the best to compare exactly: the product of the query with the bits, scaled by what
the bits lost of the vector's length, estimates the score (RaBitQ's estimator). Here each of the
query's numbers has four bits, so that the product is made of four counts of bits that differ.

With the mean m, the score of a unit vector v and a query q is
(q - m)·(v - m) - |v - m|²/2, and numbers that are the same for all vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import shake_256
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evervec.indexes.products import Floats
from evervec.model.deadlines import check

Bits = NDArray[np.uint64]
"""Of each row, its bits in words of 64. In memory the first words of all rows are one block, then the
second, and so on: a loop over one block is fast, one over the few words of a row is not."""
Counts = NDArray[np.uint16]

_ROUNDS = 3
_ROWS = 1 << 14
"""rows that are sketched or compared at once"""
_WORD = 64
_PLACES = np.array([3, 2, 1, 0], np.uint8)
"""of the bits of a query's number"""
_PLACE_VALUES = np.array([8, 4, 2, 1], np.float32)
_HALF = 8
"""of the steps of a query's number"""
_TINY = 1e-30


class Sketches(NamedTuple):
    """The sketches of some vectors."""

    bits: Bits
    scale: Floats
    """of each vector, what the product with its bits is multiplied by"""
    offset: Floats
    """of each vector, what is then added"""

    @classmethod
    def empty(cls, count: int, dimensions: int) -> Sketches:
        bits = np.empty((count, -(-dimensions // _WORD)), np.uint64, order="F")
        return cls(bits, np.empty(count, np.float32), np.empty(count, np.float32))

    @classmethod
    def joined(cls, parts: Sequence[Sketches]) -> Sketches:
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def put(self, where: slice, others: Sketches) -> None:
        self.bits[where], self.scale[where], self.offset[where] = others

    def take(self, places: NDArray[np.int64]) -> Sketches:
        bits = take_bits(self.bits, places)
        return Sketches(bits, self.scale.take(places), self.offset.take(places))


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
            made.bits[some] = _packed(turned >= 0)
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
        return Query(_packed(steps >> _PLACES[:, None] & 1), values, most)


def take_bits(bits: Bits, places: NDArray[np.int64]) -> Bits:
    """The bits of some rows."""
    taken = np.empty((len(places), bits.shape[1]), np.uint64, order="F")
    for words, all in zip(taken.T, bits.T, strict=True):
        all.take(places, out=words)
    return taken


def as_bytes(bits: Bits, dimensions: int) -> NDArray[np.uint8]:
    """The bits row by row, as many bytes as they need."""
    return np.ascontiguousarray(bits).view(np.uint8)[:, : -(-dimensions // 8)]


def from_bytes(rows: NDArray[np.uint8]) -> Bits:
    count, width = rows.shape
    padded = np.zeros((count, -(-8 * width // _WORD) * _WORD // 8), np.uint8)
    padded[:, :width] = rows
    return np.asfortranarray(padded.view(np.uint64))


def _packed(bits: NDArray[np.bool_] | NDArray[np.uint8]) -> Bits:
    return from_bytes(np.packbits(bits, axis=1))


def differing(bits: Bits, query: Query) -> Counts:
    """How many bits of each sketch differ from the query's."""
    counts = np.zeros(len(bits), np.uint16)
    for words, word in zip(bits.T, query.planes[0], strict=True):
        counts += np.bitwise_count(words ^ word)
    return counts


def estimate(sketches: Sketches, query: Query) -> Floats:
    """The scores of vectors with the query, estimated, but for a number that is the same for all."""
    bits, scale, offset = sketches
    differ = np.bitwise_count(bits.T[:, None] ^ query.planes.T[:, :, None])
    counts: Floats = differ.sum(axis=0, dtype=np.float32)
    scores: Floats = (query.most - query.values @ counts) * scale + offset
    return scores


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
