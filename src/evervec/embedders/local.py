"""Models that run on this machine: no key, no server, no data leaves it.

`local` is all-MiniLM-L6-v2, `local:wordllama` a faster and simpler model, `local:FOLDER` your own
model in ONNX form, and `local:NAME` one that fastembed downloads. Creating an embedder reports
missing packages or files; the model is loaded on first use.
"""

from __future__ import annotations

from pathlib import Path

from evervec.embedders.base import Embedder
from evervec.embedders.fastembed import FastembedEmbedder
from evervec.embedders.minilm import MiniLM
from evervec.embedders.model_folder import ModelFolder
from evervec.embedders.wordllama import WordLlamaEmbedder


def local(model: str | None = None) -> Embedder:
    """The embedder that `local:MODEL` means; `SettingsError` says what is missing.

    It also accepts the model names that a store remembers.
    """
    if model in (None, "", MiniLM.model):
        return MiniLM()
    if model in ("wordllama", WordLlamaEmbedder.model):
        return WordLlamaEmbedder()
    path = Path(model).expanduser()
    if path.is_dir() or path.is_absolute() or model.startswith("."):
        return ModelFolder(path)
    return FastembedEmbedder(model)
