"""Any model of sentence-transformers, on the processor or on GPUs.

`st:NAME` is a model of Hugging Face's hub, `st:NAME@REVISION` one that cannot change, `st:FOLDER` one
that is saved in a folder. Creating the embedder reads the model's small files only; torch and the
model are loaded on first use.

A model for GPUs runs in a process of its own (`process`): beside it, this process may compute in
Python without taking the interpreter's lock from the threads that feed the GPUs. `model` runs it, in
either process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evervec.embedders.base import estimate_tokens
from evervec.embedders.encoder import count_all_with, count_with, token_counter
from evervec.embedders.model_folder import ModelFiles
from evervec.embedders.model_loader import Once, require
from evervec.embedders.st.description import Description, describe_model, files_of_hub_model
from evervec.embedders.st.wanted import LoadedModel, Wanted
from evervec.errors import SettingsError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PRECISIONS = ("auto", "single", "half", "bfloat16")

_GPU_FILES = ("/dev/nvidiactl", "/dev/kfd")


class StEmbedder:
    """A model of sentence-transformers; may be called from several threads, and by any program."""

    name = "st"
    max_calls = 2
    """one that a device works on, and one that is tokenised meanwhile; with four, their threads took
    Python's lock from the one that feeds the device"""

    def __init__(
        self,
        model: str,
        *,
        device: str = "",
        precision: str = "auto",
        dimensions: int = 0,
        text_prompt: str = "",
        query_prompt: str = "",
        batch_tokens: int = 0,
        remote_code: bool = False,
        process: bool | None = None,
    ) -> None:
        """`device`: such as `cuda:0`, `cuda:0,cuda:1`, `mps` or `cpu`; empty: all GPUs, else the
        processor. `dimensions`: cut vectors to so many, for models that are made for it. Prompts
        stand before each text and query; empty: those of the model. `process`: whether the model
        runs in a process of its own; by default on GPUs."""
        require(("torch", "sentence_transformers"), "st")
        if precision not in PRECISIONS:
            raise SettingsError(
                f"st_precision={precision!r}: choose one of {', '.join(PRECISIONS)}"
            )
        path = Path(model).expanduser()
        is_folder = path.is_dir() or path.is_absolute() or model.startswith(".")
        if not model:
            raise SettingsError("give a model: st:NAME of Hugging Face's hub, or st:FOLDER")
        self._files = ModelFiles(path) if is_folder else None
        name, _, revision = model.partition("@")
        self._source = str(self._files.folder) if self._files else name
        self._revision = None if self._files else revision or None
        self.model = self._files.folder.name if self._files else model
        self._device, self._precision, self._code = device, precision, remote_code
        self._wanted = dimensions
        self._texts, self._queries = text_prompt, query_prompt
        self._described = Once(self._describe)
        self._running = Once(self._run)
        self._counter = Once(self._make_counter)
        on_gpu = _names_gpu(device) if device else _may_have_gpu()
        self._apart = on_gpu and not getattr(sys, "frozen", False) if process is None else process
        self.max_batch = 2048 if on_gpu else 64
        self._batch_tokens = batch_tokens or (65_536 if on_gpu else 1024)
        self.dimensions: int = dimensions or self._described().dimensions or self._count()

    @property
    def window(self) -> int | None:
        """The tokens of a text that the model reads; None if its files do not say."""
        return self._described().window

    @property
    def text_prompt(self) -> str:
        return self._texts or self._described().text_prompt

    @property
    def query_prompt(self) -> str:
        return self._queries or self._described().query_prompt

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One row for each text."""
        return self._running().embed(texts)

    def embed_query(self, text: str) -> NDArray[np.float32]:
        return self._running().embed_query(text)

    def count_tokens(self, text: str) -> int:
        """The tokens of a text, without special tokens."""
        counter = self._counter()
        return estimate_tokens(text) if counter is None else count_with(counter, text)

    def count_all_tokens(self, texts: Sequence[str]) -> list[int]:
        counter = self._counter()
        if counter is None:
            return list(map(estimate_tokens, texts))
        return count_all_with(counter, texts)

    def close(self) -> None:
        """End the threads of the devices, or the process of the model."""
        if self._running.made is not None:
            self._running.made.close()

    def _describe(self) -> Description:
        return describe_model(self._files or files_of_hub_model(self._source, self._revision))

    def _count(self) -> int:
        """The dimensions by the model itself, if no file has them."""
        return self._running().dimensions

    def _run(self) -> LoadedModel:
        wanted = Wanted(
            self.model, self._source, self._revision, self._files is not None, self._device,
            self._precision, self._wanted, self.text_prompt, self.query_prompt, self._batch_tokens,
            self._code,
        )  # fmt: skip
        running: LoadedModel
        if self._apart:
            from evervec.embedders.st.process import ModelProcess

            running = ModelProcess(wanted)
        else:
            from evervec.embedders.st.model import Model

            running = Model(wanted)
        said = self._wanted or self._described().dimensions
        if said and said != running.dimensions:
            running.close()
            raise SettingsError(
                f"{self.model} makes {running.dimensions} dimensions, but its files say {said}"
            )
        return running

    def _make_counter(self) -> Any:
        """None: the model has no tokenizer of the usual form, so tokens are estimated."""
        file = self._described().tokenizer
        return token_counter(file.read_bytes()) if file else None


def _names_gpu(device: str) -> bool:
    return not all(name.strip().startswith("cpu") for name in device.split(","))


def _may_have_gpu() -> bool:
    """Whether torch may find a GPU. Asking torch would take seconds."""
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    return not hidden and any(os.path.exists(file) for file in _GPU_FILES)
