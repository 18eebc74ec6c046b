"""Records on their way through the stages, and what becomes of them."""

from __future__ import annotations

import time
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
    waits: str | None = None
    """why it is left for another process"""
    trace: str | None = None


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
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """when its stages began and ended, for traces"""

    def mark(self, stage: str, began: int) -> None:
        """A part of a stage ends now."""
        first, _ = self.marks.get(stage, (began, 0))
        self.marks[stage] = (min(first, began), time.time_ns())

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

    def by_outcome(self) -> dict[str, int]:
        """The ends of the attempts, in the words of metrics."""
        return {
            "done": self.succeeded, "failed": self.failed, "retry": self.retried,
            "released": self.released, "lost": self.lost,
        }  # fmt: skip

    def add(self, other: Written) -> None:
        for name in ("succeeded", "failed", "retried", "released", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.extend(other.errors)
