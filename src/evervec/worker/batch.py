"""A batch of records as it passes through the stages, and its outcome."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.embedders.base import Embedded, describe
from evervec.embedding.registry import Model
from evervec.errors import EmbedderError, InvalidInput
from evervec.model.jobs import Job
from evervec.model.records import Change, Chunk, Point
from evervec.stores.values import Draft, Finish

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(slots=True)
class Item:
    """One record in a batch."""

    job: Job
    seq: int
    text_seq: int | None = None
    """see `Loaded`"""
    chunks: Sequence[Chunk] = ()
    kept: dict[bytes, int] = field(default_factory=dict)
    fresh: dict[bytes, tuple[int, str]] = field(default_factory=dict)
    """position and text of the chunks that must be embedded, by hash"""
    given: list[Point] = field(default_factory=list)
    """chunks whose vectors came with the record"""
    given_seq: int = 0
    """the seq with which they came; 0: none came"""
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
    """The calls and tokens that the provider counted for some rows of a batch."""

    rows: range
    calls: int
    tokens: int


class Call(NamedTuple):
    """The result of one provider call for some rows of a batch: an answer, or the outage that
    prevented one. An outage is not the fault of the texts."""

    rows: range
    began: int
    ended: int
    answer: Embedded | None = None
    outage: Exception | None = None


class Settled(NamedTuple):
    """What becomes of the records of a batch."""

    finishes: list[Finish]
    """all chunks are embedded"""
    failures: list[tuple[Job, str, bool]]
    """the error, and whether it is permanent"""
    postponed: list[tuple[Job, str]]
    """why it is left for another process"""
    waiting: list[Job]
    """some chunks are not embedded, because of an outage"""


@dataclass(slots=True)
class Batch:
    """Records that pass through the stages together, all for one model.

    Only one thread changes it: calls run in other threads, and `take` adds their results.
    """

    items: list[Item]
    model: Model
    texts: list[str] = field(default_factory=list)
    rows: dict[bytes, int] = field(default_factory=dict)
    """row of each chunk's hash in `texts` and `vectors`; negative: in `vectors` only"""
    owners: list[tuple[str, str]] = field(default_factory=list)
    """tenant and kind of each text, to attribute its cost"""
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict)
    errors: dict[int, Exception] = field(default_factory=dict)
    costs: list[Cost] = field(default_factory=list)
    """costs that are not accounted for yet"""
    tokens: dict[int, int] = field(default_factory=dict)
    """tokens of each row, once accounted for"""
    counted: set[int] = field(default_factory=set)
    """rows whose tokens are already counted in an attempt"""
    outage: Exception | None = None
    """why some texts were not embedded; not the fault of the texts"""
    gone: list[Job] = field(default_factory=list)
    """jobs that were cancelled after the claim"""
    calls_left: int = 0
    look_at: float = 0.0
    """when to check for complete records while calls are left"""
    characters: int = 0
    """total length of the texts to embed"""
    oversize: bool = False
    """one record needs many calls: other batches' calls go in between"""
    suspect: bool = False
    """it killed a worker before, so it must not share a process with other jobs"""
    embedded_at: float | None = None
    """when its last call ended, by the clock of the store"""
    marks: dict[str, tuple[int, int]] = field(default_factory=dict)
    """start and end of each stage, for traces"""

    def mark(self, stage: str, began: int) -> None:
        """Record that part of a stage ends now."""
        first, _ = self.marks.get(stage, (began, 0))
        self.marks[stage] = (min(first, began), time.time_ns())

    @property
    def jobs(self) -> list[Job]:
        return [item.job for item in self.items]

    def add(self, items: Sequence[Item]) -> None:
        """Add records and the texts to embed, each once; texts whose vectors are cached are left
        out."""
        self.items += items
        fresh = {
            hash: (text, item.job)
            for item in items
            for hash, (_, text) in item.fresh.items()
            if hash not in self.rows
        }
        cache = self.model.cache
        known = cache.find([text for text, _ in fresh.values()]) if cache else {}
        for hash, (text, job) in fresh.items():
            vector = known.get(text)
            if vector is not None:
                self.rows[hash] = -1 - len(self.rows)  # negative: not a row of `texts`
                self.vectors[self.rows[hash]] = vector
                continue
            self.rows[hash] = len(self.texts)
            self.texts.append(text)
            self.owners.append((job.tenant, job.kind))
            self.characters += len(text)

    @property
    def used(self) -> list[tuple[int, int]]:
        """The records that came with vectors, and the seq of these."""
        return [(item.job.record, item.given_seq) for item in self.items if item.given_seq]

    def take(self, call: Call) -> None:
        """Add the result of a call. Only errors in the provider's answer become errors of texts."""
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
        """Whether all vectors of a record are available."""
        return all(self.rows[hash] in self.vectors for hash in item.fresh)

    def _is_settled(self, item: Item) -> bool:
        if item.error is not None or item.waits is not None:
            return True
        failed = any(self.rows[h] in self.errors for h in item.fresh)
        return failed or self.is_embedded(item)

    def settle(self, worker: str, now: float) -> Settled:
        """Decide what becomes of each record; `now`: by the clock of the store."""
        settled = Settled([], [], [], [])
        ended = self.marks.get("embed", (0, 0))[1]
        self.embedded_at = now - (time.time_ns() - ended) / 1e9 if ended else None
        self.counted.clear()
        for item in self.items:
            if self.errors:
                self._fail(item)
            if item.waits is not None:
                settled.postponed.append((item.job, item.waits))
            elif item.error is not None:
                settled.failures.append((item.job, item.error, item.permanent))
            elif self.is_embedded(item):
                settled.finishes.append(self.make_finish(item, worker))
            else:
                settled.waiting.append(item.job)
        return settled

    def _fail(self, item: Item) -> None:
        """Fail a record with the error of its first chunk that failed, if one did."""
        for hash, (place, _) in item.fresh.items():
            error = self.errors.get(self.rows[hash])
            if error is not None:
                where = f"chunk {place + 1} of {len(item.chunks)}: " if len(item.chunks) > 1 else ""
                item.error = where + describe(error)
                item.permanent = isinstance(error, InvalidInput)
                return

    def share_costs(self) -> tuple[dict[tuple[str, str], tuple[float, float]], dict[int, int]]:
        """Share the cost of the calls among their texts, by length: calls and tokens by tenant and
        kind, and tokens by row."""
        spent: dict[tuple[str, str], tuple[float, float]] = {}
        share: dict[int, int] = {}
        for cost in self.costs:
            if not cost.tokens:
                continue
            lengths = [len(self.texts[row]) for row in cost.rows]
            each, whole, upto, shared = cost.calls / len(lengths), sum(lengths), 0, 0
            for row, length in zip(cost.rows, lengths, strict=True):
                upto += length
                # rounded so that the shares add up to the total
                tokens = round(cost.tokens * upto / whole) - shared
                shared += tokens
                share[row] = share.get(row, 0) + tokens
                calls, so_far = spent.get(self.owners[row], (0.0, 0.0))
                spent[self.owners[row]] = (calls + each, so_far + tokens)
        return spent, share

    def make_finish(self, item: Item, worker: str) -> Finish:
        """The points and the ledger entry of an embedded record."""
        job = item.job
        points = list(item.given)
        embedded = tokens = 0
        for hash, (place, text) in item.fresh.items():
            row = self.rows[hash]
            points.append(Point(hash, place, text, self.vectors[row]))
            embedded += row >= 0
            if row not in self.counted:  # a text of several records is counted for the first
                self.counted.add(row)
                tokens += self.tokens.get(row, 0)
        change = Change(
            job.record, job.version, job.tenant, job.kind, job.record_id, item.seq,
            points, item.kept, item.metadata, item.weight, item.updated_at,
        )  # fmt: skip
        return Finish(
            job, change, item.chunks, item.reveal, item.gone,
            embedded=embedded, reused=len(item.kept) + len(points) - embedded, tokens=tokens,
            worker=worker, embedded_at=self.embedded_at if embedded else None,
            text_seq=item.text_seq,
        )  # fmt: skip

    def split(self) -> list[Batch]:
        """Split off the records that can be written while others are still being embedded. Their
        batch shares texts and vectors with this one; none when no record is ready."""
        ready = [item for item in self.items if self._is_settled(item)]
        if not ready:
            return []
        characters = sum(len(text) for item in ready for _, text in item.fresh.values())
        part = replace(
            self, items=ready, counted=set(), gone=[], calls_left=0, outage=None,
            characters=characters, oversize=False, marks=dict(self.marks),
        )  # fmt: skip
        self.items = [item for item in self.items if not self._is_settled(item)]
        self.costs = []
        self.characters = max(0, self.characters - characters)
        return [part]


@dataclass(slots=True)
class Reached:
    """How far a worker has come, in chunks."""

    jobs: int = 0
    """that were prepared: their chunks are known"""
    chunks: int = 0
    """of these jobs that have to be embedded"""
    embedded: int = 0
    """of these chunks"""

    def prepare(self, batch: Batch) -> None:
        self.jobs += len(batch.items)
        self.chunks += len(batch.texts)


@dataclass(slots=True)
class Written:
    """The outcome of a batch."""

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
        """The number of attempts by outcome, where there were any, with the names used in
        metrics."""
        counts = {
            "done": self.succeeded, "failed": self.failed, "retry": self.retried,
            "released": self.released, "lost": self.lost,
        }  # fmt: skip
        return {outcome: count for outcome, count in counts.items() if count}

    def add(self, other: Written) -> None:
        for name in ("succeeded", "failed", "retried", "released", "lost"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.errors.extend(other.errors)
