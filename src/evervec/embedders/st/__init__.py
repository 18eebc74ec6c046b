"""Any model of sentence-transformers, on the processor or on GPUs.

`st:NAME` is a model of Hugging Face's hub, `st:NAME@REVISION` one that cannot change, `st:FOLDER` one that is saved in a folder. Creating the
embedder reads the model's small files only; torch and the model are loaded on first use.

Texts are ordered by length and tokenised some hundred at a time, while devices run the batches
made of those before. A batch is as many texts as have about `st_batch_tokens` tokens together.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from evervec.embedders.base import describe, estimate_tokens
from evervec.embedders.encoder import count_all_with, count_with, pack, token_counter
from evervec.embedders.loading import Once, require
from evervec.embedders.model_folder import ModelFiles
from evervec.embedders.st.description import Description, describe_model, files_of_hub_model
from evervec.embedders.st.lanes import Lanes, Rows
from evervec.errors import EvervecError, ProviderUnavailable, SettingsError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from evervec.embedders.st.replica import Loaded, Tokenize

PRECISIONS = ("auto", "single", "half", "bfloat16")

_MOST_TEXTS = 1024
"""texts of a batch, however short"""
_FIRST_SLICE, _SLICE = 64, 1024
"""texts that are tokenised together: few at first, so that the devices begin soon"""
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
    ) -> None:
        """`device`: such as `cuda:0`, `cuda:0,cuda:1`, `mps` or `cpu`; empty: all GPUs, else the
        processor. `dimensions`: cut vectors to so many, for models that are made for it. Prompts
        stand before each text and query; empty: those of the model."""
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
        self._loaded = Once(self._load)
        self._counter = Once(self._make_counter)
        self._tokenizing = threading.Lock()
        """a tokenizer uses all processors by itself"""
        on_gpu = device != "cpu" if device else _may_have_gpu()
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
        rows = np.empty((len(texts), self.dimensions), np.float32)
        loaded, lanes = self._loaded()
        waiting: deque[tuple[list[int], Future[Rows]]] = deque()
        for places, batch in self._batches(texts, loaded.tokenize):
            if len(waiting) >= lanes.room:
                done, future = waiting.popleft()
                rows[done] = future.result()
            waiting.append((places, lanes.submit(batch)))
        for done, future in waiting:
            rows[done] = future.result()
        return rows

    def embed_query(self, text: str) -> NDArray[np.float32]:
        loaded, lanes = self._loaded()
        query = loaded.tokenize([text], self.query_prompt)
        row: NDArray[np.float32] = lanes.submit(query, urgent=True).result()[0]
        return row

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
        """End the threads of the devices."""
        if (loaded := self._loaded.made) is not None:
            loaded[1].close()

    def _batches(self, texts: Sequence[str], tokenize: Tokenize) -> Iterator[tuple[list[int], Any]]:
        """Places and tokens of texts of similar length, the longest first: a device that cannot
        hold a batch finds out at once."""
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place]))
        start, size = 0, _FIRST_SLICE
        places: list[int] = []
        made: list[Any] = []
        while start < len(order):
            taken = order[start : start + size]
            start, size = start + size, min(2 * size, _SLICE)
            places += taken
            with self._tokenizing:
                made += tokenize([texts[place] for place in taken], self.text_prompt)
            packed = pack([len(text) for text in made], _MOST_TEXTS, self._batch_tokens)
            whole = packed if start >= len(order) else packed[:-1]
            for batch in whole:
                yield [places[at] for at in batch], [made[at] for at in batch]
            rest = packed[len(whole) :]  # the last batch may have room for more
            places = [places[at] for batch in rest for at in batch]
            made = [made[at] for batch in rest for at in batch]

    def _describe(self) -> Description:
        return describe_model(self._files or files_of_hub_model(self._source, self._revision))

    def _count(self) -> int:
        """The dimensions by the model itself, if no file has them."""
        return self._loaded()[0].dimensions

    def _load(self) -> tuple[Loaded, Lanes]:
        from evervec.embedders.st.replica import load

        prompts = [self.text_prompt, self.query_prompt]
        try:
            loaded = load(
                self._source, revision=self._revision, device=self._device,
                precision=self._precision, dimensions=self._wanted, prompts=prompts,
                code=self._code,
            )  # fmt: skip
        except EvervecError:
            raise
        except Exception as error:  # sentence-transformers and torch have no common error class
            if self._files:
                raise SettingsError(
                    f"the model in {self._source} cannot be loaded: {describe(error)}"
                ) from error
            raise ProviderUnavailable(
                f"{self.model} cannot be loaded ({describe(error)}): let this machine reach "
                "huggingface.co once, or give a folder with the model"
            ) from error
        said = self._wanted or self._described().dimensions
        if said and said != loaded.dimensions:
            raise SettingsError(
                f"{self.model} makes {loaded.dimensions} dimensions, but its files say {said}"
            )
        return loaded, Lanes(loaded.replicas)

    def _make_counter(self) -> Any:
        """None: the model has no tokenizer of the usual form, so tokens are estimated."""
        file = self._described().tokenizer
        return token_counter(file.read_bytes()) if file else None


def _may_have_gpu() -> bool:
    """Whether torch may find a GPU. Asking torch would take seconds."""
    if sys.platform == "darwin":
        return os.uname().machine == "arm64"
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") == ""
    return not hidden and any(os.path.exists(file) for file in _GPU_FILES)
