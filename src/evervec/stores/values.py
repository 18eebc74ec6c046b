"""The values that a store takes and returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from evervec.errors import StoreError
from evervec.model.jobs import Job, Op, Status
from evervec.model.ranking import PLAIN, Rescore
from evervec.model.records import Change, Chunk, ModelSpec


class Merge(StrEnum):
    """How a draft meets a record that exists."""

    REPLACE = "replace"
    """it replaces the record, unless its version is not newer"""
    NEWER = "newer"
    """it also has to be newer by its time of update; a delete has a time too"""
    OVERWRITE = "overwrite"
    """it replaces the record in any case; the record keeps the higher version"""


class GivenVectors(NamedTuple):
    """Vectors that came with a record."""

    model: str
    """the key of the model that made them"""
    packed: bytes
    """the hash of each chunk, then its vector"""


@dataclass(slots=True)
class Draft:
    """A record that was validated and rendered, ready to be saved."""

    id: str
    text: str
    hash: bytes
    title: str | None = None
    metadata: str = "{}"
    """JSON with sorted keys"""
    weight: float = 1.0
    data: str | None = None
    """the typed object that the text was rendered from, as JSON"""
    priority: int = 0
    delay: float = 0.0
    max_attempts: int | None = None
    version: int | None = None
    created_at: float | None = None
    updated_at: float | None = None
    boxed: bool = False
    if_seq: int | None = None
    """accepted only if the record still has this seq"""
    trace: str | None = None
    """the caller's trace"""
    box_seq: int = 0
    """the seq of the add that filled the box from which the draft was read"""
    given: GivenVectors | None = None
    merge: Merge = Merge.REPLACE


@dataclass(frozen=True, slots=True)
class KindSpec:
    """The properties of a kind that other processes must know."""

    chunker: str
    """how its texts are split into chunks, in the form that `chunking.parse` reads"""
    app: bool = False
    """its loader or chunker is code, so only a process that registered it can do its jobs"""


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind's embedding version, as the store keeps it. `spec` is None until the first
    embedder adopts it."""

    version: int
    kind: str
    state: str
    chunker: str
    """empty until the first worker saves its chunker"""
    app: bool
    cut_since: int
    """the value of the store's counter when `chunker` last changed"""
    spec: ModelSpec | None
    rescore: Rescore = PLAIN
    """of its kind"""


@dataclass(slots=True)
class Loaded:
    """A claimed job's record as a worker needs it, read in one snapshot. By then the job may
    require more than when it was claimed."""

    op: Op
    seq: int
    """the seq of the job, and therefore of the text"""
    live: bool
    title: str | None
    text: str
    metadata: dict[str, Any]
    weight: float
    updated_at: float
    chunks: tuple[Chunk, ...]
    """the ledger: the record's chunks that the index holds now"""
    box: str | None = None
    trace: str | None = None
    """the trace of the caller that made the change"""
    box_seq: int = 0
    """the seq of the add that filled the box, which may be older than the job"""
    text_seq: int | None = None
    """the seq of the record, if the text is the record's: not that of a box or a row"""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that exists but cannot be read: damaged, or not text."""

    error: str


Place = tuple[int, int]
"""a record in a collection: version and record"""


class Finish(NamedTuple):
    """A claimed job that succeeded, and the change of its record's points.

    Without a `change` the job is only marked done: the caller maintains a separate index.
    """

    job: Job
    change: Change | None = None
    chunks: Sequence[Chunk] = ()
    reveal: Draft | None = None
    """the boxed or loaded record that becomes visible now"""
    gone: bool = False
    """the loader reported that the row no longer exists"""
    embedded: int = 0
    reused: int = 0
    tokens: int = 0
    worker: str = ""
    fence: int | None = None
    """the seq of its points, if the index is outside the store"""
    embedded_at: float | None = None
    """when its last chunk was embedded, if one had to be"""
    text_seq: int | None = None
    """the seq of the record when its text was read; None: its text is from elsewhere"""

    @property
    def seq(self) -> int:
        return self.change.seq if self.change else (self.job.claimed_seq or self.job.seq)

    @property
    def record_seq(self) -> int:
        """The seq of the record that becomes visible. A boxed record keeps the seq of its add, even
        if its job was enqueued again since."""
        return (self.reveal.box_seq if self.reveal else 0) or self.seq

    @property
    def place(self) -> Place:
        return self.job.version, self.job.record


@dataclass(frozen=True, slots=True)
class Failure:
    """A claimed job that failed: it is retried at `retry_at`, or becomes a dead letter if that is
    None or no attempts are left."""

    job: Job
    error: str
    retry_at: float | None
    worker: str = ""


@dataclass(slots=True)
class Candidate:
    """A live record that a search found, with the values that rank it."""

    record: int
    kind: str
    weight: float
    updated_at: float


@dataclass(slots=True)
class Found:
    """A live record as a hit shows it."""

    record: int
    kind: str
    id: str
    title: str | None
    text: str
    metadata: str
    """JSON"""
    seq: int = 0
    data: str | None = None
    """JSON"""


class ExportedRecord(NamedTuple):
    """A live record with all that an export has of it, read in one snapshot."""

    record: int
    id: str
    seq: int
    version: int | None
    """the caller's"""
    title: str | None
    text: str
    metadata: str
    data: str | None
    weight: float
    created_at: float
    updated_at: float
    chunks: tuple[Chunk, ...]
    """those of its current text that the index holds; empty if they are not of this text"""


class LedgerEntry(NamedTuple):
    """The chunks of a live record that the index holds."""

    record: int
    id: str
    chunks: tuple[Chunk, ...]
    current: bool
    """they are of the record's latest change"""


class SampledRecord(NamedTuple):
    """A live record without its text."""

    record: int
    id: str
    title: str | None
    """its beginning"""
    metadata: str | None
    """JSON; None if it is long"""
    updated_at: float
    chunks: int
    """that the index holds of it"""


class Digest(NamedTuple):
    """The values of a record that are compared with a row of an attached table."""

    hash: bytes | None
    metadata: str
    weight: float
    updated_at: float
    busy: bool
    """an open job will bring it up to date"""


class Typed(NamedTuple):
    """A record with the object that its text was rendered from."""

    record: int
    tenant: str
    id: str
    seq: int
    hash: bytes | None
    data: str
    title: str | None
    metadata: str
    weight: float
    created_at: float
    updated_at: float


class Expected(NamedTuple):
    """The points that the index should hold of one record: the store's side of `verify`."""

    record: int
    tenant: str
    kind: str
    id: str
    live: bool
    current: bool
    """the ledger entry matches the record's latest change"""
    cut: bool
    """the ledger entry was written after the kind's chunker last changed"""
    job: Status | None
    chunks: tuple[Chunk, ...] = ()
    """the chunks in the ledger entry"""
    seq: int = 0
    """the seq that its points should have"""
    doubtful: bool = False
    """in doubt: a write began and was not confirmed, so the index may hold other points"""

    @property
    def hashes(self) -> set[bytes]:
        return {chunk.hash for chunk in self.chunks}

    @property
    def busy(self) -> bool:
        """An open job will bring the record up to date."""
        return self.job in (Status.PENDING, Status.PROCESSING)


class ReplicaFailed(StoreError):
    """A read replica did not answer a search: the primary can."""


class Progress(NamedTuple):
    """How complete a version is."""

    records: int
    """live records of its kind"""
    current: int
    """live records whose vectors match their current text"""
    pending: int
    """jobs that are pending or in progress"""
    failed: int
    behind: int
    """records that only the serving version has, or that it has in a later state"""


class LockHolder(NamedTuple):
    """The holder of a named lock, and its token."""

    holder: str
    token: str


class Note(NamedTuple):
    """A small value that all processes of a store share; each change gives a new `revision`."""

    value: str
    revision: int


class VersionCount(NamedTuple):
    """How much one embedding version of a kind holds for one tenant."""

    items: int
    last_sync_at: float | None


@dataclass(slots=True)
class Applied:
    """The changes that an index did not apply, or applied only in part."""

    missing: set[Place] = field(default_factory=set)
    """some chunks to keep are missing from the index; the rest of the change was applied"""
    newer: dict[Place, int] = field(default_factory=dict)
    """skipped, because the index holds a newer write; the seq of that write"""

    def add(self, other: Applied) -> None:
        self.missing |= other.missing
        self.newer |= other.newer


class ChunksMissing(Exception):
    """The index does not hold chunks that the ledger says it holds."""

    def __init__(self, places: set[Place]) -> None:
        super().__init__(f"the index lacks chunks of {len(places)} records")
        self.places = places


Apply = Callable[[Sequence[Change], Any], Applied | None]
"""Writes points in the store's open transaction; returns what was not applied (None: nothing)."""
