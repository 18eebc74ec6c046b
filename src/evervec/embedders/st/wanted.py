"""What is to be run, and what runs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Wanted:
    """A model, and how it is to be run."""

    name: str
    source: str
    """a folder, or a name of the hub"""
    revision: str | None
    is_folder: bool
    device: str
    """empty: all GPUs, otherwise the processor"""
    precision: str
    dimensions: int
    """0: those of the model"""
    text_prompt: str
    query_prompt: str
    batch_tokens: int
    remote_code: bool


class LoadedModel(Protocol):
    """A model that is loaded; may be called from several threads."""

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]: ...

    def embed_query(self, text: str) -> NDArray[np.float32]: ...

    def close(self) -> None: ...
