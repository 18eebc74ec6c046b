"""A deterministic embedder that hashes words: for tests and demos, with no model at all.

Texts that share words or parts of words get similar vectors. It knows nothing of
meaning, costs microseconds, and gives the same vectors on every machine.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WORD = re.compile(r"\w+")


class HashingEmbedder:
    """Signed feature hashing of words and their leading parts."""

    name = "hashing"
    max_batch = 256

    def __init__(self, dimensions: int = 256) -> None:
        self.dimensions = dimensions
        self.model = f"hashing-{dimensions}"

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        for row, text in zip(vectors, texts, strict=True):
            row[0] = 0.01  # never all zero, not even for a text without words
            for word in _WORD.findall(text.lower()):
                for feature, share in ((word, 1.0), (word[:4], 0.5)):
                    code = zlib.crc32(feature.encode())
                    row[code % self.dimensions] += share if code & 0x80000000 else -share
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return np.asarray(vectors / np.maximum(lengths, 1e-9), np.float32)
