"""WordLlama: each token has a static vector, and a text has the mean of its tokens' vectors.

It captures less meaning than a transformer and is a hundred times as fast. Its package has the
vectors and the tokenizer; evervec reads these files without importing the package, which would
change the caller's logging.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.model_loader import Once, folder_of, native, read_checked, require

_ORIGIN = "wordllama>=0.4.0,<0.5"
_VECTORS = "weights/l2_supercat_256.safetensors"
_VECTORS_SHA256 = "64b47a2dc493cb8e85944076601189739852d7b64e0e1eedcb1937a251cd9fd5"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"
_TOKENIZER_SHA256 = "93248f2a9ec36c7b35f700a033d5f36228aae48db61aee31007fa49062cdeb68"
_UNKNOWN = [0]
"""the tokens of a text that has none"""


class WordLlamaEmbedder:
    """Static vectors of 256 dimensions; may be called from several threads."""

    name = "local"
    model = "wordllama-256"
    dimensions = 256
    max_batch = 256

    def __init__(self) -> None:
        require(("wordllama", "safetensors", "tokenizers"), "wordllama")
        self._loaded = Once(_load)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        tokenizer, vectors = self._loaded()
        rows = np.empty((len(texts), self.dimensions), np.float32)
        with native():
            encoded = tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        for row, pieces in zip(rows, encoded, strict=True):
            row[:] = vectors[pieces.ids or _UNKNOWN].mean(axis=0)
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def _load() -> tuple[Any, NDArray[np.float32]]:
    from safetensors.numpy import load
    from tokenizers import Tokenizer

    folder = folder_of("wordllama")
    stored = load(read_checked(folder / _VECTORS, _VECTORS_SHA256, _ORIGIN))
    tokenizer = Tokenizer.from_buffer(read_checked(folder / _TOKENIZER, _TOKENIZER_SHA256, _ORIGIN))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer, stored["embedding.weight"].astype(np.float32)
