"""A cache in the store, of limited size, for the vectors of texts that several records share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from evervec.chunking import hash_text
from evervec.model.records import ModelSpec
from evervec.stores.base import Store

_ROW_BYTES = 100  # of a row, without its vector


class VectorCache:
    """The vectors of one model, by the hash of the whole embedded text, including its context."""

    def __init__(self, store: Store, model: ModelSpec, megabytes: int) -> None:
        self._store = store
        self._model = f"{model.name}/{model.dimensions}"
        self._most = max(1, (megabytes << 20) // (4 * model.dimensions + _ROW_BYTES))

    @classmethod
    def of(cls, store: Store, model: ModelSpec | None, megabytes: int) -> VectorCache | None:
        return cls(store, model, megabytes) if model and megabytes else None

    def find(self, texts: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The cached vectors of some texts."""
        hashes = {text: hash_text(text) for text in texts}
        found = self._store.shared.cached(self._model, list(hashes.values()))
        return {
            text: np.frombuffer(found[hash], "<f4")
            for text, hash in hashes.items()
            if hash in found
        }

    def keep(self, vectors: Mapping[str, NDArray[np.float32]]) -> None:
        packed = {hash_text(text): vector.tobytes() for text, vector in vectors.items()}
        self._store.shared.cache(self._model, packed, self._most)
