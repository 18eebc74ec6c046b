"""Records on their way through the stages, and what becomes of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.model import Chunk, Job
from evervec.models import Model
from evervec.stores.values import Draft

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Item:
    """One record on its way."""

    job: Job
    seq: int
    chunks: Sequence[Chunk] = ()
    kept: dict[bytes, int] = field(default_factory=dict)
    fresh: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """position and text of the chunks that must be embedded, by hash"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    updated_at: float = 0.0
    reveal: Draft | None = None
    gone: bool = False
    error: str | None = None
    permanent: bool = False


class Cost(NamedTuple):
    """What the provider counted for some rows of a batch."""

    rows: range
    calls: int
    tokens: int


@dataclass(slots=True)
class Batch:
    """Records that go through the stages together, all for one model."""

    items: list[Item]
    model: Model
    texts: list[str] = field(default_factory=list)
    rows: dict[bytes, int] = field(default_factory=dict)
    """the row of `texts` and `vectors` that a chunk's hash has; below 0: of `vectors` alone"""
    owners: list[tuple[str, str]] = field(default_factory=list)
    """tenant and kind of each text, for what it costs"""
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    costs: list[Cost] = field(default_factory=list)
    """what is not accounted for yet"""
    tokens: dict[int, int] = field(default_factory=dict)
    """of each row, once accounted for"""
    counted: set[int] = field(default_factory=set)
    """rows whose tokens stand in an attempt already"""
    outage: Exception | None = None
    calls_left: int = 0
    characters: int = 0
    suspect: bool = False
    """a worker died of it: whatever is in it must not take others along"""

    @property
    def jobs(self) -> list[Job]:
        return [item.job for item in self.items]


@dataclass(slots=True)
class Written:
    """What became of a batch."""

    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    released: int = 0
    lost: int = 0
    errors: list[tuple[int, str]] = field(default_factory=list)

    @property
    def processed(self) -> int:
        return self.succeeded + self.failed + self.retried

    def add(self, other: Written) -> None:
        for name in ("succeeded", "failed", "retried", "released", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.extend(other.errors)
