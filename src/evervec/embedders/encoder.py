"""Runs transformers on onnxruntime: tokens, batches, threads, one vector per text.

Texts are ordered by length and packed into batches of few enough tokens to stay in the processor's
caches. Each batch runs on one thread, and as many batches at once as there are processors.

48 texts of 10 to 60 words take MiniLM 0.9 s of processor time that way, 1.4 s in batches of 4096
tokens, and 1.6 s if two threads share every step of those.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from evervec.embedders.model_loader import Once, native
from evervec.errors import SettingsError
from evervec.runtime.threads import Pool, processors

Pooling = Literal["mean", "cls"]

MAX_BATCH_TEXTS = 32
MAX_BATCH_TOKENS = 512
_MOST_CHARACTERS = 1 << 20

_SENTENCE = "sentence_embedding"
_INPUTS = {"input_ids", "attention_mask", "token_type_ids"}


class Transformer:
    """A loaded model and its tokenizer; may be called from several threads."""

    def __init__(
        self, model: bytes | Path, tokenizer: bytes, *, max_tokens: int, output: str
    ) -> None:
        from tokenizers import Tokenizer

        with native():
            self.tokenizer = Tokenizer.from_buffer(tokenizer)
            self._session = _session(model)
        self.tokenizer.no_padding()  # the tokenizer file may set padding and truncation
        self.tokenizer.enable_truncation(max_tokens)
        self._inputs = {given.name for given in self._session.get_inputs()}
        if unknown := self._inputs - _INPUTS:
            raise SettingsError(
                f"the model has unsupported inputs {', '.join(sorted(unknown))}: export it with "
                "only input_ids, attention_mask and token_type_ids"
            )
        outputs = {made.name: made for made in self._session.get_outputs()}
        self._output = outputs.get(output) or next(iter(outputs.values()))
        self._processors = Pool(processors())

    def batched(
        self,
        encoded: Sequence[Any],
        read: Callable[[NDArray[np.float32], NDArray[np.int64]], NDArray[np.float32]],
    ) -> NDArray[np.float32]:
        """One row per tokenized text. `read` makes the rows of a batch from the model's output and
        the mask of tokens."""
        batches = pack([len(text) for text in encoded])
        jobs = [[encoded[place] for place in batch] for batch in batches]
        # A query does not queue behind the texts being embedded.
        run = map if len(jobs) == 1 else self._processors.map
        rows = np.concatenate(list(run(lambda batch: read(*self._run(batch)), jobs)))
        ordered = np.empty_like(rows)
        ordered[np.concatenate(batches)] = rows
        return ordered

    def _run(self, batch: Sequence[Any]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        longest = max(1, *map(len, batch))
        ids = np.zeros((len(batch), longest), np.int64)
        mask, types = np.zeros_like(ids), np.zeros_like(ids)
        for row, text in enumerate(batch):
            size = len(text)
            ids[row, :size] = text.ids
            types[row, :size] = text.type_ids
            mask[row, :size] = 1
        feed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
        feed = {name: feed[name] for name in self._inputs}
        with native():
            answer = np.asarray(self._session.run([self._output.name], feed)[0], np.float32)
        return answer, mask


class Encoder(Transformer):
    """Makes one unit vector per text."""

    def __init__(
        self, model: bytes | Path, tokenizer: bytes, *, max_tokens: int, pooling: Pooling
    ) -> None:
        super().__init__(model, tokenizer, max_tokens=max_tokens, output=_SENTENCE)
        self._pooling = pooling
        self._counter = Once(lambda: token_counter(tokenizer))

    @property
    def dimensions(self) -> int | None:
        """The dimensions that the model declares, if it does."""
        size = self._output.shape[-1]
        return size if isinstance(size, int) else None

    def count(self, text: str) -> int:
        """The tokens of a text, without special tokens."""
        return count_with(self._counter(), text)

    def count_all(self, texts: Sequence[str]) -> list[int]:
        return count_all_with(self._counter(), texts)

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """One unit vector per text."""
        with native():
            encoded = self.tokenizer.encode_batch_fast(list(texts))
        return self.batched(encoded, self._pooled)

    def _pooled(self, answer: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        if answer.ndim == 3:  # a vector for each token; otherwise the model pools by itself
            if self._pooling == "cls":
                answer = answer[:, 0, :]
            else:  # the sum has the same direction as the mean
                answer = np.matmul(mask[:, None, :].astype(np.float32), answer)[:, 0, :]
        lengths = np.linalg.norm(answer, axis=1, keepdims=True)
        return np.asarray(answer / np.maximum(lengths, 1e-12), np.float32)


class LocalEmbedder(ABC):
    """A transformer on this machine. It is loaded on first use."""

    name = "local"
    max_batch = 64
    model: str
    version: str | None = None
    dimensions: int
    window: int
    text_prompt = query_prompt = ""

    def __init__(self) -> None:
        self._encoder = Once(self.load)

    @abstractmethod
    def load(self) -> Encoder: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return self._encoder().embed([self.text_prompt + text for text in texts])

    def embed_query(self, text: str) -> NDArray[np.float32]:
        row: NDArray[np.float32] = self._encoder().embed([self.query_prompt + text])[0]
        return row

    def count_tokens(self, text: str) -> int:
        return self._encoder().count(text)

    def count_all_tokens(self, texts: Sequence[str]) -> list[int]:
        return self._encoder().count_all(texts)


def pack(
    lengths: Sequence[int],
    texts: int = MAX_BATCH_TEXTS,
    tokens: int = MAX_BATCH_TOKENS,
    step: int = 1,
) -> list[list[int]]:
    """Positions of texts in batches of similar length, the longest first. A batch holds at most so
    many texts, and with padding so many tokens; a full one a multiple of `step`, if it can."""
    batches: list[list[int]] = []
    room = 0
    for place in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if room == 0:
            batches.append([])
            room = max(1, min(texts, tokens // max(1, lengths[place])))
            room -= room % step if room > step else 0
        batches[-1].append(place)
        room -= 1
    return batches


def token_counter(tokenizer: bytes) -> Any:
    """A second tokenizer without truncation, for texts of any length."""
    from tokenizers import Tokenizer

    with native():
        counter = Tokenizer.from_buffer(tokenizer)
    counter.no_padding()
    counter.no_truncation()
    return counter


def count_with(counter: Any, text: str) -> int:
    """The tokens of a text, without special tokens."""
    with native():
        return len(counter.encode(text, add_special_tokens=False))


def count_all_with(counter: Any, texts: Sequence[str]) -> list[int]:
    """The tokens of each text, counted on all processors while Python does other work."""
    counts: list[int] = []
    for part in _portions(texts):
        with native():
            encoded = counter.encode_batch_fast(part, add_special_tokens=False)
        counts += map(len, encoded)
    return counts


def _portions(texts: Sequence[str]) -> Iterator[list[str]]:
    """Texts of not much more than a million characters: their tokens take memory."""
    part: list[str] = []
    room = _MOST_CHARACTERS
    for text in texts:
        part.append(text)
        room -= len(text)
        if room <= 0:
            yield part
            part, room = [], _MOST_CHARACTERS
    if part:
        yield part


def _session(model: bytes | Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only; its warnings are about its own optimisations
    there = onnxruntime.get_available_providers()
    wanted = ("CUDAExecutionProvider", "CPUExecutionProvider")
    return onnxruntime.InferenceSession(
        model if isinstance(model, bytes) else str(model),
        options,
        providers=[provider for provider in wanted if provider in there],
    )
