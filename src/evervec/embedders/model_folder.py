"""A folder with a sentence-transformers model in ONNX form.

It reads `model.onnx` or `onnx/model.onnx`, `tokenizer.json` and, if present, the files in which
sentence-transformers describes how to use the model: pooling, maximum length, and the prompts for
texts and queries.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evervec.embedders.encoder import Encoder, LocalEmbedder, Pooling
from evervec.embedders.loading import require
from evervec.errors import EvervecError, SettingsError

_MODELS = ("model.onnx", "onnx/model.onnx")
_TOKENIZER = "tokenizer.json"
_MODULES = {"Transformer", "Pooling", "Normalize"}
_MAX_TOKENS = 512
_POOLING = {
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean",  # another length, the same direction
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}
"""pooling as releases of sentence-transformers before 6 write it"""


class ModelFolder(LocalEmbedder):
    """A caller's own model."""

    def __init__(self, folder: Path) -> None:
        require(("onnxruntime", "tokenizers"), "local")
        self._folder = folder.expanduser().resolve()
        if not self._folder.is_dir():
            raise SettingsError(f"folder {self._folder} does not exist: give a folder with a model")
        self.model = self._folder.name
        self._file = self._find(*_MODELS)
        self._tokenizer = self._find(_TOKENIZER)
        self._pooling = self._read_pooling()
        self.window = self._read_max_tokens()
        prompts = self._json("config_sentence_transformers.json").get("prompts") or {}
        self.text_prompt = prompts.get("document") or prompts.get("passage") or ""
        self.query_prompt = prompts.get("query") or ""
        self._declared = self._json("config.json").get("hidden_size")
        self.dimensions = self._declared or self._count_dimensions()
        super().__init__()

    def load(self) -> Encoder:
        try:
            encoder = Encoder(
                self._file,
                self._tokenizer.read_bytes(),
                max_tokens=self.window,
                pooling=self._pooling,
            )
        except EvervecError:
            raise
        except Exception as error:  # tokenizers and onnxruntime have no common error class
            raise SettingsError(f"the model in {self._folder} cannot be loaded: {error}") from error
        if self._declared and encoder.dimensions not in (None, self._declared):
            raise SettingsError(
                f"the model in {self._folder} has {encoder.dimensions} dimensions, but its "
                f"config.json says {self._declared}: correct hidden_size there"
            )
        return encoder

    def _count_dimensions(self) -> int:
        """The dimensions from the model itself, if no file has them."""
        counted = self.load().dimensions
        if counted is None:
            raise SettingsError(
                f"the dimensions of the model in {self._folder} are unknown: add a config.json "
                "with hidden_size"
            )
        return counted

    def _find(self, *names: str) -> Path:
        for name in names:
            if (self._folder / name).is_file():
                return self._folder / name
        raise SettingsError(
            f"{self._folder} has no {' or '.join(names)}: export the model with "
            "`optimum-cli export onnx --model NAME FOLDER`"
        )

    def _read_pooling(self) -> Pooling:
        modules = {m["type"].rpartition(".")[2] for m in self._json("modules.json", default=[])}
        if unknown := modules - _MODULES:
            raise SettingsError(
                f"the model in {self._folder} has unsupported modules after the transformer "
                f"({', '.join(sorted(unknown))}): export it as one graph with an output "
                "sentence_embedding, without modules.json"
            )
        config = self._json("1_Pooling/config.json")
        modes = config.get("pooling_mode") or [
            mode for key, mode in _POOLING.items() if config.get(f"pooling_mode_{key}")
        ]
        modes = [modes] if isinstance(modes, str) else modes or ["mean"]
        if modes == ["mean"]:
            return "mean"
        if modes == ["cls"]:
            return "cls"
        raise SettingsError(
            f"the model in {self._folder} uses unsupported pooling ({' and '.join(modes)}): only "
            "mean and cls are supported"
        )

    def _read_max_tokens(self) -> int:
        said = self._json("sentence_bert_config.json").get("max_seq_length")
        if said:
            return int(said)
        longest = self._json("tokenizer_config.json").get("model_max_length") or _MAX_TOKENS
        return int(min(longest, _MAX_TOKENS))

    def _json(self, name: str, default: Any = None) -> Any:
        file = self._folder / name
        if not file.is_file():
            return {} if default is None else default
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SettingsError(f"{file} is not JSON ({error}): download it again") from error
