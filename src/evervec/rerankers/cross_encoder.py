"""A cross-encoder on this machine, from a folder in ONNX form.

It reads a query and a text together, so it judges better than the cosine of two vectors, and costs
more. The folder has `model.onnx` or `onnx/model.onnx`, and `tokenizer.json`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.encoder import Transformer
from evervec.embedders.model_folder import ModelFiles
from evervec.embedders.model_loader import Once, native, require
from evervec.errors import SettingsError

_LOGITS = "logits"


class CrossEncoder:
    """Scores pairs of query and text. The model is loaded on first use."""

    logits = True

    def __init__(self, folder: Path) -> None:
        require(("onnxruntime", "tokenizers"), "local")
        self._files = ModelFiles(folder)
        self.name = f"local:{self._files.folder.name}"
        self._model, self._tokenizer = self._files.model(), self._files.tokenizer()
        self._window = self._files.max_tokens()
        self._transformer = Once(self._load)

    def rerank(self, query: str, texts: Sequence[str]) -> list[float]:
        transformer = self._transformer()
        with native():
            pairs = transformer.tokenizer.encode_batch_fast([(query, text) for text in texts])
        scores: list[float] = transformer.batched(pairs, self._score).tolist()
        return scores

    def _load(self) -> Transformer:
        with self._files.loading():
            return Transformer(
                self._model,
                self._tokenizer.read_bytes(),
                max_tokens=self._window,
                output=_LOGITS,
            )

    def _score(self, answer: NDArray[np.float32], _: NDArray[np.int64]) -> NDArray[np.float32]:
        if answer.ndim == 1:
            return answer
        if answer.ndim == 2 and answer.shape[1] == 1:
            return answer[:, 0]
        if answer.ndim == 2 and answer.shape[1] == 2:  # the classes "no" and "yes"
            return np.asarray(answer[:, 1] - answer[:, 0], np.float32)
        shape = "x".join(map(str, answer.shape[1:]))
        raise SettingsError(
            f"the model in {self._files.folder} is not a cross-encoder: for each text it returns "
            f"{shape} numbers instead of one or two"
        )
