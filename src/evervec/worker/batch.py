"""Records on their way through the stages, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.embedders.base import Embedded
from evervec.embedding.registry import Model
from evervec.errors import EmbedderError
from evervec.model.jobs import Job
from evervec.model.records import Chunk
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


class Call(NamedTuple):
    """What one provider call gave for some rows of a batch: an answer, or the reason why there is
    none, which is no fault of the texts."""

    rows: range
    began: int
    ended: int
    answer: Embedded | None = None
    outage: Exception | None = None


@dataclass(slots=True)
class Batch:
    """Records that go through the stages together, all for one model.

    Only one thread changes it: calls run in others, and `take` adds what they gave.
    """

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
    """why some texts were not embedded, through no fault of theirs"""
    gone: list[Job] = field(default_factory=list)
    """jobs that were cancelled after the claim"""
    calls_left: int = 0
    look_at: float = 0.0
    """when to see whether some records are complete, though calls are left"""
    characters: int = 0
    """of the texts to embed"""
    oversize: bool = False
    """a record in it needs many calls by itself: other batches go in between"""
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

    def take(self, call: Call) -> None:
        """Add what a call gave. Only the errors of the provider's answer become errors of texts."""
        first, last = self.marks.get("embed", (call.began, call.ended))
        self.marks["embed"] = (min(first, call.began), max(last, call.ended))
        if call.answer is None:
            self.outage = call.outage
            if isinstance(call.outage, EmbedderError):
                self.costs.append(Cost(call.rows, call.outage.calls, call.outage.tokens))
            return
        self.costs.append(Cost(call.rows, call.answer.calls, call.answer.tokens))
        for place, row in enumerate(call.rows):
            if place in call.answer.errors:
                self.errors[row] = call.answer.errors[place]
            else:
                self.vectors[row] = call.answer.vectors[place]

    def is_embedded(self, item: Item) -> bool:
        """Whether all vectors of a record are there."""
        return all(self.rows[hash] in self.vectors for hash in item.fresh)

    def _is_settled(self, item: Item) -> bool:
        if item.error is not None or item.waits is not None:
            return True
        failed = any(self.rows[h] in self.errors for h in item.fresh)
        return failed or self.is_embedded(item)

    def split(self) -> Batch | None:
        """Take out the records that can be written while others are still being embedded, as a
        batch that shares texts and vectors with this one; None when there are none."""
        ready = [item for item in self.items if self._is_settled(item)]
        if not ready:
            return None
        characters = sum(len(text) for item in ready for _, text in item.fresh.values())
        part = replace(
            self, items=ready, counted=set(), gone=[], calls_left=0, outage=None,
            characters=characters, oversize=False, marks=dict(self.marks),
        )  # fmt: skip
        self.items = [item for item in self.items if not self._is_settled(item)]
        self.costs = []
        self.characters = max(0, self.characters - characters)
        return part


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
