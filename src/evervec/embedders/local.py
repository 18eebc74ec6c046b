"""Models that run on this machine: no key, no server, no data leaves it.

`local` is all-MiniLM-L6-v2, `local:wordllama` a faster and simpler model, `local:FOLDER` your own
model in ONNX form, and `local:NAME` one that fastembed downloads. Creating an embedder reports
missing packages or files; the model is loaded on first use.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.base import Embedder
from evervec.embedders.encoder import Encoder
from evervec.embedders.fastembed import FastembedEmbedder
from evervec.embedders.loading import Once
from evervec.embedders.minilm import MiniLM
from evervec.embedders.model_folder import ModelFolder
from evervec.embedders.wordllama import WordLlamaEmbedder


class Source(Protocol):
    """Where a transformer is loaded from, and its prompts."""

    name: str
    version: str | None
    dimensions: int
    window: int
    text_prompt: str
    query_prompt: str

    def load(self) -> Encoder: ...


class LocalEmbedder:
    """A transformer on onnxruntime: all-MiniLM-L6-v2, or the model of a folder."""

    name = "local"
    max_batch = 64

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._source: Source = MiniLM() if folder is None else ModelFolder(Path(folder))
        self.model = self._source.name
        self.version = self._source.version
        self.dimensions = self._source.dimensions
        self.window = self._source.window
        self._encoder = Once(self._source.load)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        prompt = self._source.text_prompt
        return self._encoder().embed([prompt + text for text in texts])

    def count_tokens(self, text: str) -> int:
        return self._encoder().count(text)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._encoder().embed([self._source.query_prompt + text])[0]
        return row


def local(model: str | None = None) -> Embedder:
    """The embedder that `local:MODEL` means; `SettingsError` says what is missing.

    It also accepts the model names that a store remembers.
    """
    if model in (None, "", MiniLM.name):
        return LocalEmbedder()
    if model in ("wordllama", WordLlamaEmbedder.model):
        return WordLlamaEmbedder()
    path = Path(model).expanduser()
    if path.is_dir() or path.is_absolute() or model.startswith("."):
        return LocalEmbedder(path)
    return FastembedEmbedder(model)
