"""A deterministic embedder that hashes words: for tests and demos, without any model.

Texts that share words or parts of words get similar vectors. It knows nothing of meaning, takes
microseconds, and makes the same vectors on every machine.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Signed feature hashing of words and their prefixes."""

    name = "hashing"
    max_batch = 256

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.model = f"hashing-{dimensions}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimensions))
        vectors[:, 0] = 0.01  # never all zero, not even for a text without words
        found = [
            [code for word in _WORD.findall(text.lower()) for code in _hashes(word)]
            for text in texts
        ]
        codes = np.array([code for some in found for code in some], np.int64)
        shares = np.tile([1.0, 0.5], len(codes) // 2) * np.where(codes & 0x80000000, 1.0, -1.0)
        rows = np.repeat(np.arange(len(texts)), [len(some) for some in found])
        np.add.at(vectors, (rows, codes % self.dimensions), shares)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)


@lru_cache(maxsize=1 << 16)
def _hashes(word: str) -> tuple[int, int]:
    """The hashes of a word and of its prefix. The cache saves a quarter of the embedder's time."""
    return zlib.crc32(word.encode()), zlib.crc32(word[:4].encode())
