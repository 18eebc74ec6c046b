"""Records of made-up words, and an embedder whose vectors cost nothing."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 384
_VOCABULARY = 5000


def texts(count: int, words: int, seed: int = 1) -> list[str]:
    """`count` texts of so many words, drawn from a vocabulary with common and rare words."""
    rng = random.Random(seed)
    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["".join(rng.choices(letters, k=rng.randint(3, 10))) for _ in range(_VOCABULARY)]
    shares = [1 / (rank + 10) for rank in range(_VOCABULARY)]
    drawn = rng.choices(vocabulary, shares, k=count * words)
    return [" ".join(drawn[i : i + words]) for i in range(0, len(drawn), words)]


def vectors(count: int, seed: int = 1, dimensions: int = DIMENSIONS) -> NDArray[np.float32]:
    """Random vectors of length one."""
    made = np.random.default_rng(seed).standard_normal((count, dimensions), np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


class NoCost:
    """An embedder that hands out prepared rows: one of its own for each text that it was told
    of before, any for others. It counts what it was asked."""

    name = "prepared"
    max_batch = 256

    def __init__(
        self, known: Iterable[str] = (), *, seed: int = 1, dimensions: int = DIMENSIONS
    ) -> None:
        self.model = f"prepared-{dimensions}"
        self.dimensions = dimensions
        self._rows = {text: row for row, text in enumerate(known)}
        self._matrix = vectors(max(len(self._rows), self.max_batch), seed, dimensions)
        self._counting = threading.Lock()
        self.texts = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        with self._counting:
            self.texts += len(texts)
        if self._rows:
            return self._matrix[[self._rows.get(text, 0) for text in texts]]
        return self._matrix[: len(texts)]

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._matrix[self._rows.get(text, 0)]
        return row
