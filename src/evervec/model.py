"""The words of evervec as values: records, jobs, tickets, chunks, points and hits.

All are frozen: what a caller holds never changes under it. Times are aware UTC
datetimes here and plain seconds since the epoch inside the stores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


T = TypeVar("T")


class Status(StrEnum):
    """Where a job stands."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


class Op(StrEnum):
    """What a job has to do for its record."""

    EMBED = "embed"
    """embed the record's own text"""
    OPEN = "open"
    """embed the boxed record that the job carries, then let it appear"""
    LOAD = "load"
    """fetch the row through the kind's loader, embed it, then let it appear"""
    DELETE = "delete"
    """take the record's points out of the index"""


class Outcome(StrEnum):
    """How one attempt at a job ended."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    CRASHED = "crashed"


def quick_maker(frozen: type[T]) -> Callable[..., T]:
    """A constructor, by position, for values that are made by the thousand.

    A frozen dataclass sets each of its fields by a call. A mutable twin with the same slots
    does not, so it takes a tenth of the time to make one of those and let it become frozen.
    """
    described = [(f.name, Any, field(default=f.default)) for f in fields(frozen)]  # type: ignore[arg-type]
    twin = make_dataclass(frozen.__name__, described, slots=True)

    def make(*values: Any) -> T:
        made: Any = twin(*values)
        made.__class__ = frozen
        return made  # type: ignore[no-any-return]

    return make


def as_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)


def as_seconds(moment: datetime | float) -> float:
    """Seconds since the epoch; a datetime without a zone counts as UTC."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return float(moment)


@dataclass(frozen=True, slots=True)
class Record:
    """What the caller owns, as it is now."""

    tenant: str
    kind: str
    id: str
    seq: int
    title: str | None
    text: str
    metadata: dict[str, Any]
    weight: float
    created_at: datetime
    updated_at: datetime
    embedded: bool
    """its current version is in the index"""


@dataclass(frozen=True, slots=True)
class Ticket:
    """The receipt of a change: wait for it, or search not older than it."""

    kind: str
    id: str
    job_id: int
    seq: int
    accepted: bool = True
    """False: `version=` was not newer than the last one, so nothing changed"""
    is_new: bool = True
    """False: the record was there before"""
    enqueued: bool = True
    """False: nothing was to do, because nothing changed"""


@dataclass(frozen=True, slots=True)
class Job:
    """The sync state of one record for one embedding version."""

    job_id: int
    tenant: str
    kind: str
    record_id: str
    embedding_version: str
    op: Op
    seq: int
    claimed_seq: int | None
    status: Status
    priority: int
    attempts: int
    max_attempts: int
    error: str | None
    token: str | None
    created_at: datetime
    scheduled_for: datetime
    started_at: datetime | None
    completed_at: datetime | None
    lease_expires_at: datetime | None
    record: int = field(repr=False, default=0)
    """the store's own number of the record"""
    version: int = field(repr=False, default=0)
    """the store's own number of the embedding version"""
    worker: str | None = field(repr=False, default=None)
    """who claimed it last"""
    crashes: int = field(repr=False, default=0)
    """claims of this job that ended with their worker's death"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a job, kept as its history."""

    attempt: int
    seq: int
    worker: str
    started_at: datetime | None
    finished_at: datetime
    outcome: Outcome
    error: str | None
    chunks_embedded: int
    chunks_reused: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Content:
    """What a claimed job is about, for callers that work the queue themselves."""

    title: str | None
    text: str
    metadata: Mapping[str, Any]
    weight: float
    draft: Any = field(repr=False, default=None)
    """the record that appears when the job is finished with it"""


class EnqueueResult(NamedTuple):
    """What became of one `enqueue`: its job, or the error that kept it out."""

    job_id: int | None
    is_new: bool
    """False: the record had a job already"""
    error: str | None = None


class Chunk(NamedTuple):
    """A piece of a record's text, known by the hash of what is embedded for it."""

    hash: bytes
    start: int
    end: int


class Point(NamedTuple):
    """A chunk's vector on its way into an index."""

    hash: bytes
    position: int
    text: str
    vector: NDArray[np.float32]


@dataclass(slots=True)
class Change:
    """What one record's points are to become in one collection, as of `seq`.

    After it the record has exactly the points in `points` and `kept`; a change
    with neither removes the record. `kept` names points that are there already.
    """

    record: int
    version: int
    tenant: str
    kind: str
    id: str
    seq: int
    points: Sequence[Point] = ()
    kept: Mapping[bytes, int] = field(default_factory=dict)
    """position by hash"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result."""

    kind: str
    id: str
    title: str | None
    text: str
    """the best chunk"""
    similarity: float | None
    """cosine; None for a hit found by text alone"""
    relevance: float
    """what the hits are ordered by: similarity (or the fused score), weight and age"""
    metadata: dict[str, Any]
    via: str
    """"semantic", "text", or "hybrid" for a hit that both found"""
    row: Mapping[str, Any] | None = None
    """of an attached table, when the search was asked for rows"""


class Hits(list[Hit]):
    """Search results, best first, with how they were found."""

    def __init__(self, hits: Iterable[Hit] = (), *, via: str, version: str | None) -> None:
        super().__init__(hits)
        self.via = via
        self.version = version


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """What made a version's vectors."""

    name: str
    provider: str
    model: str
    dimensions: int

    def makes_as(self, other: ModelSpec) -> bool:
        """Whether their vectors can be compared, whatever the versions are called."""
        return (self.provider, self.model, self.dimensions) == (
            other.provider, other.model, other.dimensions,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """One kind's vectors made by one model."""

    name: str
    kind: str
    provider: str
    model: str
    dimensions: int
    state: str
    items: int
    last_sync_at: datetime | None
    chunker: str = ""
    """how its texts are cut"""
    template: str = ""
    """a fingerprint of how its kind's records become text"""
    table: str = ""
    """the table or collection of the index that has its vectors; empty until there is a model"""
    created_at: datetime | None = None
