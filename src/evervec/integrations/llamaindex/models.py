"""Models of LlamaIndex for evervec, and the model of an evervec store for LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import PrivateAttr


class EvervecEmbedding(BaseEmbedding):
    """The model of a store that is opened in this process, for LlamaIndex."""

    _ev: Any = PrivateAttr()

    def __init__(self, ev: Any, **options: Any) -> None:
        options.setdefault("model_name", ev.embedder.model)
        super().__init__(**options)
        self._ev = getattr(ev, "sync", ev)

    @classmethod
    def class_name(cls) -> str:
        return "EvervecEmbedding"

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._get_text_embeddings([text])[0]

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        found: list[list[float]] = self._ev.embedder.embed(texts).tolist()
        return found

    def _get_query_embedding(self, query: str) -> list[float]:
        found: list[float] = self._ev.provider.embed_query(query, self._ev.tenant).tolist()
        return found

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


class _LlamaIndexEmbedder:
    """A model of LlamaIndex as an embedder of evervec."""

    name, max_batch = "llamaindex", 256

    def __init__(self, model: BaseEmbedding, name: str, dimensions: int) -> None:
        self._model = model
        self.model, self.dimensions = name, dimensions

    def embed(self, texts: Sequence[str]) -> Any:
        import numpy as np

        return np.asarray(self._model.get_text_embedding_batch(list(texts)), dtype=np.float32)

    def embed_query(self, text: str) -> Any:
        import numpy as np

        return np.asarray(self._model.get_query_embedding(text), dtype=np.float32)


def model_of(embedding: BaseEmbedding, name: str | None = None) -> Any:
    """A model of LlamaIndex as an embedder, for `evervec.open(embedder=…)`. `name` identifies the
    model in the store; by default its own `model_name`."""
    dimensions = len(embedding.get_query_embedding("dimensions"))
    return _LlamaIndexEmbedder(embedding, name or embedding.model_name, dimensions)
