"""A sentence-transformers model on the devices of this machine, by torch.

Texts are tokenised by evervec itself, which is faster than by sentence-transformers, and can go on
while a device works. That a model's texts are tokenised as sentence-transformers would is checked
when it is loaded. Models for which it is not so (chat templates, static vectors, prompts that are
left out of pooling) are given whole texts, and run by `encode`.
"""

from __future__ import annotations

import copy
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from evervec.embedders.model_loader import native
from evervec.embedders.st.lanes import OutOfMemory, Rows
from evervec.errors import SettingsError

log = logging.getLogger("evervec")

Tokenize = Callable[[Sequence[str], str], Sequence[Any]]
"""texts and the prompt before each, as a replica takes them"""

_PROBES = ["evervec probe", "", "Two sentences. 日本語 and\n\nmore " * 400]
_FEATURES = {"input_ids", "attention_mask", "token_type_ids"}
_CHARACTERS = 4
"""of a token, about"""
_MPS_OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class Grid:
    """The shapes of batches. Texts, if they are many, and tokens are multiples of these, so that shapes
    recur."""

    texts: int = 1
    tokens: int = 1

    def padded(self, texts: int, tokens: int) -> tuple[int, int]:
        """The rows and tokens of a batch of so many texts with at most so many tokens."""
        many = texts > self.texts
        return _up(texts, self.texts) if many else texts, _up(tokens, self.tokens)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


FREE, FEW_SHAPES = Grid(), Grid(texts=32, tokens=8)


@dataclass(frozen=True)
class Loaded:
    """A model that is ready to run."""

    tokenize: Tokenize
    replicas: Sequence[Any]
    dimensions: int
    grid: Grid


def devices(wanted: str) -> list[str]:
    """The devices to use: those that are named, or all GPUs, or the processor."""
    import torch

    if wanted:
        named = [name.strip() for name in wanted.split(",") if name.strip()]
        try:
            for name in named:
                torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:
            first = str(error).partition("\n")[0]
            raise SettingsError(f"st_device={wanted!r} cannot be used: {first}") from error
        return named
    if torch.cuda.is_available():
        return [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["mps"] if torch.backends.mps.is_available() else ["cpu"]


def load(
    name: str,
    *,
    revision: str | None,
    device: str,
    precision: str,
    dimensions: int,
    prompts: Sequence[str],
    code: bool,
) -> Loaded:
    """Load a model by its name or folder on all of its devices."""
    import torch
    from sentence_transformers import SentenceTransformer

    places = devices(device)
    with native(), _quietly():
        model = SentenceTransformer(
            name, device="cpu", revision=revision, trust_remote_code=code
        ).eval()
    made = _dimensions(model)
    if dimensions > made:
        raise SettingsError(f"{name} makes {made} dimensions, fewer than dimensions={dimensions}")
    tokenizer = _tokenizer(model, prompts)
    if tokenizer is None:
        log.info("%s is tokenised and run by sentence-transformers itself", name)
    grid = FEW_SHAPES if tokenizer and all(p.startswith("cuda") for p in places) else FREE
    replicas: list[Any] = []
    for place in places:
        with native():
            mine = model if place == places[-1] else copy.deepcopy(model)
            mine = mine.to(device=place, dtype=_dtype(torch, precision, place, mine))
        if tokenizer is None:
            replicas.append(TextReplica(mine, place, dimensions or made))
        else:
            replicas.append(TokenReplica(mine, place, dimensions or made, tokenizer.padding, grid))
    return Loaded(tokenizer or _as_texts, replicas, dimensions or made, grid)


@contextmanager
def _quietly() -> Iterator[None]:
    """Without transformers' progress bars, which it shows by default."""
    from transformers.utils import logging as theirs

    shown = theirs.is_progress_bar_enabled()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            theirs.enable_progress_bar()


def _dimensions(model: Any) -> int:
    of = getattr(model, "get_embedding_dimension", None) or model.get_sentence_embedding_dimension
    made = of()
    if not made:
        made = len(model.encode(_PROBES[0], show_progress_bar=False))
    return int(made)


def _dtype(torch: Any, precision: str, place: str, model: Any) -> Any:
    """Half precision is that in which the model is stored, if it is, because models that are stored
    as bfloat16 may overflow in float16."""
    if precision == "single" or (precision == "auto" and place.startswith("cpu")):
        return torch.float32
    stored = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if precision == "bfloat16" or stored == torch.bfloat16:
        return torch.bfloat16
    return torch.float16


@dataclass(frozen=True)
class Padding:
    """How the texts of a batch are made equally long."""

    token: int
    left: bool
    types: bool
    """whether the model takes token types"""


class Tokenizer:
    """The tokenizer of a model, truncating and without padding; may be used from several threads,
    and runs while Python does other work."""

    def __init__(self, given: Any, window: int | None) -> None:
        from tokenizers import Tokenizer as Backend

        with native():
            self._backend = Backend.from_str(given.backend_tokenizer.to_str())
        self._backend.no_padding()
        if window:
            self._backend.enable_truncation(window, direction=given.truncation_side)
        else:
            self._backend.no_truncation()
        self.padding = Padding(
            given.pad_token_id or 0,
            given.padding_side == "left",
            "token_type_ids" in given.model_input_names,
        )

    def __call__(self, texts: Sequence[str], prompt: str) -> list[list[int]]:
        with native():
            encoded = self._backend.encode_batch_fast([prompt + text for text in texts])
        return [text.ids for text in encoded]


def _tokenizer(model: Any, prompts: Sequence[str]) -> Tokenizer | None:
    """None: evervec cannot make the model's inputs itself."""
    given = getattr(model, "tokenizer", None)
    if given is None or not getattr(given, "is_fast", False):
        return None
    tokenizer = Tokenizer(given, model.max_seq_length)
    return tokenizer if _is_tokenized_alike(model, tokenizer, prompts) else None


def _is_tokenized_alike(model: Any, tokenizer: Tokenizer, prompts: Sequence[str]) -> bool:
    """Whether evervec makes the inputs that sentence-transformers would, for texts with each
    prompt."""
    if any(not getattr(module, "include_prompt", True) for module in model) and any(prompts):
        return False
    make = getattr(model, "preprocess", None) or model.tokenize
    for prompt in {"", *prompts}:
        wanted = make([prompt + text for text in _PROBES])
        arrays = {name for name, value in wanted.items() if hasattr(value, "shape")}
        if not {"input_ids", "attention_mask"} <= arrays <= _FEATURES:
            return False
        mine = features(tokenizer(_PROBES, prompt), tokenizer.padding)
        if any(
            name not in mine or not np.array_equal(mine[name], wanted[name].numpy())
            for name in arrays
        ):
            return False
    return True


def features(texts: Sequence[Sequence[int]], padding: Padding, grid: Grid = FREE) -> dict[str, Any]:
    """The arrays that a transformer takes, with a row for each text; on a grid, more rows."""
    rows, longest = grid.padded(len(texts), max(1, *map(len, texts)))
    lengths = np.ones(rows, np.int64)  # a row without any token could make the model warn
    lengths[: len(texts)] = np.fromiter(map(len, texts), np.int64, len(texts))
    places = np.arange(longest)
    mask = places >= (longest - lengths)[:, None] if padding.left else places < lengths[:, None]
    ids = np.full(mask.shape, padding.token, np.int64)
    of_texts = ids[: len(texts)]
    of_texts[mask[: len(texts)]] = np.fromiter(chain.from_iterable(texts), np.int64)
    made = {"input_ids": ids, "attention_mask": mask.astype(np.int64)}
    if padding.types:  # a single text has one type; a tokenizer that differs is found by the check
        made["token_type_ids"] = np.zeros_like(ids)
    return made


_OFTEN = 8
"""For each new shape of a batch, cuDNN takes 50 ms or more to plan its attention, and saves 8 to 14 %
of each batch of that shape then. So the first batches of a shape go without cuDNN."""


def _uses_cudnn() -> bool:
    """Whether torch may compute attention by cuDNN; early releases of torch 2 cannot."""
    from torch.backends import cuda

    return hasattr(cuda, "cudnn_sdp_enabled") and bool(cuda.cudnn_sdp_enabled())


class TokenReplica:
    """A model that takes tokens. On CUDA, copies to and from the device go on beside its work."""

    def __init__(
        self, model: Any, device: str, dimensions: int, padding: Padding, grid: Grid = FREE
    ) -> None:
        self.device = device
        self._model = model
        self._dimensions = dimensions
        self._padding = padding
        self._grid = grid
        self._is_cuda = device.startswith("cuda")
        self._may_plan = _uses_cudnn()
        self._seen: Counter[tuple[int, ...]] = Counter()
        """how often each shape of a batch came"""

    def features(self, texts: Sequence[Any]) -> dict[str, Any]:
        """The arrays of a batch."""
        return features(texts, self._padding, self._grid)

    def begin(self, texts: Sequence[Any]) -> Callable[[], Rows]:
        import torch

        made = self.features(texts)
        with _out_of_memory(), native(), torch.inference_mode(), self._attention(made):
            given = {name: self._copy(torch.from_numpy(array)) for name, array in made.items()}
            whole = self._model(given)["sentence_embedding"]
            rows = whole[: len(texts), : self._dimensions].float()
            if not self._is_cuda:
                done: Rows = rows.cpu().numpy()
                return lambda: done
            host = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
            host.copy_(rows, non_blocking=True)
            copied = torch.cuda.Event()
            copied.record(torch.cuda.current_stream(self.device))

        def collect() -> Rows:
            with _out_of_memory():
                copied.synchronize()
            arrived: Rows = host.numpy()
            return arrived

        return collect

    @contextmanager
    def _attention(self, made: dict[str, Any]) -> Iterator[None]:
        """Leaves cuDNN out for shapes that are rare. Where several devices begin batches at once, some
        may do so with the other's choice."""
        if not self._is_cuda or not self._may_plan:
            yield
            return
        from torch.backends import cuda

        shape = made["input_ids"].shape
        self._seen[shape] += 1
        cuda.enable_cudnn_sdp(self._seen[shape] > _OFTEN)
        try:
            yield
        finally:
            cuda.enable_cudnn_sdp(True)

    def _copy(self, array: Any) -> Any:
        if self._is_cuda:
            return array.pin_memory().to(self.device, non_blocking=True)
        return array.to(self.device)

    def free(self) -> None:
        free(self.device)


@dataclass(frozen=True)
class Raw:
    """A text that sentence-transformers tokenises."""

    text: str
    prompt: str

    def __len__(self) -> int:
        return len(self.text) // _CHARACTERS + 1


def _as_texts(texts: Sequence[str], prompt: str) -> list[Raw]:
    return [Raw(text, prompt) for text in texts]


class TextReplica:
    """A model that is given whole texts."""

    def __init__(self, model: Any, device: str, dimensions: int) -> None:
        self.device = device
        self._model = model
        self._dimensions = dimensions

    def begin(self, texts: Sequence[Any]) -> Callable[[], Rows]:
        with _out_of_memory(), native():
            made = self._model.encode(
                [raw.text for raw in texts],
                prompt=texts[0].prompt or None,
                batch_size=len(texts),
                show_progress_bar=False,
                convert_to_numpy=True,
            )
        rows: Rows = np.asarray(made, np.float32)[:, : self._dimensions]
        return lambda: rows

    def free(self) -> None:
        free(self.device)


def free(device: str) -> None:
    """Give back the memory that torch keeps for later."""
    import torch

    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    elif device.startswith("mps"):
        torch.mps.empty_cache()


@contextmanager
def _out_of_memory() -> Iterator[None]:
    """Turns the errors of torch's allocators into `OutOfMemory`."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(str(error)) from error
    except RuntimeError as error:
        if _MPS_OUT_OF_MEMORY in str(error).lower():
            raise OutOfMemory(str(error)) from error
        raise
