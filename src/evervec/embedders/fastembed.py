"""Models by name through fastembed, which downloads a model when it is first used."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.base import describe
from evervec.embedders.encoder import MAX_BATCH_TEXTS
from evervec.embedders.model_loader import Once, native, require
from evervec.errors import ProviderUnavailable, SettingsError


class FastembedEmbedder:
    """A model of fastembed's list; may be called from several threads."""

    name = "local"
    max_batch = 64

    def __init__(self, model: str) -> None:
        require(("fastembed",), "fastembed")
        from fastembed import TextEmbedding

        known = {m["model"].lower(): m for m in TextEmbedding.list_supported_models()}
        found = known.get(model.lower())
        if found is None:
            close = difflib.get_close_matches(model.lower(), known, 1)
            hint = (
                f"did you mean local:{known[close[0]]['model']}?"
                if close
                else ("see https://qdrant.github.io/fastembed/examples/Supported_Models")
            )
            raise SettingsError(f"{model!r} is neither a model of fastembed nor a folder; {hint}")
        self.model: str = found["model"]
        self.dimensions: int = found["dim"]
        self._loaded = Once(self._load)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        model = self._loaded()
        return self._rows(model.passage_embed(list(texts), batch_size=MAX_BATCH_TEXTS))

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._rows(self._loaded().query_embed(text))[0]
        return row

    def _rows(self, made: Iterable[Any]) -> NDArray[np.float32]:
        with native():
            rows = [np.asarray(row, np.float32) for row in made]
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def _load(self) -> Any:
        from fastembed import TextEmbedding

        try:
            return TextEmbedding(self.model)
        except Exception as error:  # it raises many types of errors when it cannot download a model
            raise ProviderUnavailable(
                f"fastembed cannot load {self.model} ({describe(error)}): let this machine reach "
                "huggingface.co once, or set FASTEMBED_CACHE_PATH to a folder that has the model"
            ) from error
