"""A folder with a sentence-transformers model in ONNX form.

It reads `model.onnx` or `onnx/model.onnx`, `tokenizer.json` and, if present, the files in which
sentence-transformers describes how to use the model: pooling, maximum length, and the prompts for
texts and queries.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from evervec.embedders.encoder import Encoder, LocalEmbedder, Pooling
from evervec.embedders.model_loader import require
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


class ModelFiles:
    """The files of a model in a folder; `SettingsError` says which one is missing or damaged."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser().resolve()
        if not self.folder.is_dir():
            raise SettingsError(f"folder {self.folder} does not exist: give a folder with a model")

    def model(self) -> Path:
        return self._find(*_MODELS)

    def tokenizer(self) -> Path:
        return self._find(_TOKENIZER)

    def max_tokens(self) -> int:
        said = self.json("sentence_bert_config.json").get("max_seq_length")
        if said:
            return int(said)
        longest = self.json("tokenizer_config.json").get("model_max_length") or _MAX_TOKENS
        return int(min(longest, _MAX_TOKENS))

    def json(self, name: str, default: Any = None) -> Any:
        file = self.folder / name
        if not file.is_file():
            return {} if default is None else default
        try:
            return json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise SettingsError(f"{file} is not JSON ({error}): download it again") from error

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Name the folder in the error of a model that cannot be loaded."""
        try:
            yield
        except EvervecError:
            raise
        except Exception as error:  # tokenizers and onnxruntime have no common error class
            raise SettingsError(f"the model in {self.folder} cannot be loaded: {error}") from error

    def _find(self, *names: str) -> Path:
        for name in names:
            if (self.folder / name).is_file():
                return self.folder / name
        raise SettingsError(
            f"{self.folder} has no {' or '.join(names)}: export the model with "
            "`optimum-cli export onnx --model NAME FOLDER`"
        )


def pooling_modes(config: dict[str, Any]) -> list[str]:
    """The ways of pooling whose vectors are joined, of the configuration of a pooling module."""
    modes = config.get("pooling_mode") or [
        mode for key, mode in _POOLING.items() if config.get(f"pooling_mode_{key}")
    ]
    return [modes] if isinstance(modes, str) else modes or ["mean"]


class ModelFolder(LocalEmbedder):
    """A caller's own model."""

    def __init__(self, folder: Path) -> None:
        require(("onnxruntime", "tokenizers"), "local")
        self._files = ModelFiles(folder)
        self._folder = self._files.folder
        self.model = self._folder.name
        self._file, self._tokenizer = self._files.model(), self._files.tokenizer()
        self._pooling = self._read_pooling()
        self.window = self._files.max_tokens()
        prompts = self._files.json("config_sentence_transformers.json").get("prompts") or {}
        self.text_prompt = prompts.get("document") or prompts.get("passage") or ""
        self.query_prompt = prompts.get("query") or ""
        self._declared = self._files.json("config.json").get("hidden_size")
        self.dimensions = self._declared or self._count_dimensions()
        super().__init__()

    def load(self) -> Encoder:
        with self._files.loading():
            encoder = Encoder(
                self._file,
                self._tokenizer.read_bytes(),
                max_tokens=self.window,
                pooling=self._pooling,
            )
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

    def _read_pooling(self) -> Pooling:
        modules = {
            m["type"].rpartition(".")[2] for m in self._files.json("modules.json", default=[])
        }
        if unknown := modules - _MODULES:
            raise SettingsError(
                f"the model in {self._folder} has unsupported modules after the transformer "
                f"({', '.join(sorted(unknown))}): export it as one graph with an output "
                "sentence_embedding, without modules.json"
            )
        modes = pooling_modes(self._files.json("1_Pooling/config.json"))
        if modes == ["mean"]:
            return "mean"
        if modes == ["cls"]:
            return "cls"
        raise SettingsError(
            f"the model in {self._folder} uses unsupported pooling ({' and '.join(modes)}): only "
            "mean and cls are supported"
        )
