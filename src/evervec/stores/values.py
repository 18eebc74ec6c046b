"""What goes into a store and comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evervec.model.jobs import Job, Op, Status
from evervec.model.records import Change, Chunk, ModelSpec


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
    """only if the record is still of that seq; else it is not accepted"""
    trace: str | None = None
    """the trace that its caller is in"""
    box_seq: int = 0
    """of the add that filled the box which it came out of"""


@dataclass(frozen=True, slots=True)
class KindSpec:
    """What of a kind other processes must know."""

    chunker: str
    """how its texts are cut, as `chunking.parse` reads it"""
    app: bool = False
    """its loader or chunker is code, so only a process that registered it can do its jobs"""


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind's embedding version, as the store keeps it. `spec` is None until a first
    embedder adopted it."""

    version: int
    kind: str
    state: str
    chunker: str
    """empty until a first worker says how it cuts"""
    app: bool
    cut_since: int
    """what the store's counter was when `chunker` last changed"""
    spec: ModelSpec | None


@dataclass(slots=True)
class Loaded:
    """What a worker needs to know of a claimed job's record, all of one moment: by then the
    job may want more than when it was claimed."""

    op: Op
    seq: int
    """of the job, and so of the text"""
    live: bool
    title: str | None
    text: str
    metadata: dict[str, Any]
    weight: float
    updated_at: float
    chunks: tuple[Chunk, ...]
    """the ledger: what the index holds of it now"""
    box: str | None = None
    trace: str | None = None
    """the trace of whoever asked for the change"""
    box_seq: int = 0
    """of the add that filled the box, which may be older than the job"""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is there but cannot be read: damaged, or not text."""

    error: str


Place = tuple[int, int]
"""a record in a collection: version and record"""


class Finish(NamedTuple):
    """A claimed job that succeeded, and what its record's points become.

    With no `change` the job is only marked done: its caller keeps an index of its own.
    """

    job: Job
    change: Change | None = None
    chunks: Sequence[Chunk] = ()
    reveal: Draft | None = None
    """the boxed or loaded record that appears now"""
    gone: bool = False
    """the loader said that its row is no more"""
    embedded: int = 0
    reused: int = 0
    tokens: int = 0
    worker: str = ""
    fence: int | None = None
    """the seq of its points, where the index is outside of the store"""

    @property
    def seq(self) -> int:
        return self.change.seq if self.change else (self.job.claimed_seq or self.job.seq)

    @property
    def record_seq(self) -> int:
        """Of the record that appears: what comes out of a box is as old as its add, however often
        its job was asked for again since."""
        return (self.reveal.box_seq if self.reveal else 0) or self.seq

    @property
    def place(self) -> Place:
        return self.job.version, self.job.record


@dataclass(frozen=True, slots=True)
class Failure:
    """A claimed job that failed: it waits until `retry_at`, or for ever when that is None or no
    attempt is left."""

    job: Job
    error: str
    retry_at: float | None
    worker: str = ""


@dataclass(slots=True)
class Candidate:
    """A live record that a search found, with what ranks it."""

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


class Digest(NamedTuple):
    """A record as a row of an attached table is compared with it."""

    hash: bytes | None
    metadata: str
    weight: float
    busy: bool
    """a job is on its way that will settle it"""


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
    """What the index should hold of one record: the store's side of `verify`."""

    record: int
    tenant: str
    kind: str
    id: str
    live: bool
    current: bool
    """the ledger is of the record's latest version"""
    cut: bool
    """the ledger was made since the kind's way to cut its texts last changed"""
    job: Status | None
    chunks: tuple[Chunk, ...] = ()
    """that the ledger names"""
    seq: int = 0
    """that its points should carry"""
    doubtful: bool = False
    """a write began and was not finished, so the index may hold something else"""

    @property
    def hashes(self) -> set[bytes]:
        return {chunk.hash for chunk in self.chunks}

    @property
    def busy(self) -> bool:
        """A job is on its way that will settle it."""
        return self.job in (Status.PENDING, Status.PROCESSING)


class Progress(NamedTuple):
    """How far a version has come."""

    records: int
    """live ones of its kind"""
    current: int
    """those of them whose vectors are of their present text"""
    pending: int
    """jobs that wait or are being done"""
    failed: int
    behind: int
    """records that the version that serves has in a later state, or has alone"""


class LockHolder(NamedTuple):
    """Who holds a named lock, and by which token."""

    holder: str
    token: str


class Note(NamedTuple):
    """A small value that all processes of a store share; `revision` is another with each change."""

    value: str
    revision: int


@dataclass(frozen=True, slots=True)
class StoredKey:
    """A key of the service as it is kept: by a hash, never by itself."""

    id: str
    hash: str
    tenant: str
    agent: str
    role: str
    created_at: float
    expires_at: float | None = None
    last_used_at: float | None = None
    revoked_at: float | None = None
    parent: str | None = None
    """of a token: the id of the key that it was made from"""
    kinds: str | None = None
    """of a token: a JSON list of the kinds that it is for; None: all"""


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of the audit log: who did what, from where, and what became of it."""

    at: float
    key_id: str | None
    agent: str
    tenant: str
    action: str
    target: str
    outcome: str
    request_id: str | None = None
    client: str | None = None
    entry: int = 0


class AuditChoice(NamedTuple):
    """Which entries of the audit log are asked for; None: any."""

    tenant: str | None = None
    action: str | None = None
    key_id: str | None = None
    before: int | None = None
    """an entry's number"""
    since: float | None = None


class Asked(NamedTuple):
    """What is remembered of a request that may come again; no answer yet: None."""

    fingerprint: str
    answer: str | None


JOBLESS = "records without jobs"
"""The note of the lowest number of records whose dead letters were purged since a worker last
looked for such."""


class Holding(NamedTuple):
    """What one embedding version of a kind holds of one tenant."""

    items: int
    last_sync_at: float | None


@dataclass(slots=True)
class Applied:
    """What an index did not do of the changes that it was given."""

    missing: set[Place] = field(default_factory=set)
    """some of their kept chunks are not there; the rest of the change was done"""
    newer: dict[Place, int] = field(default_factory=dict)
    """left out, because something newer is there; its seq"""

    def add(self, other: Applied) -> None:
        self.missing |= other.missing
        self.newer |= other.newer


class ChunksMissing(Exception):
    """The index does not hold chunks that the ledger says it holds."""

    def __init__(self, places: set[Place]) -> None:
        super().__init__(f"the index lacks chunks of {len(places)} records")
        self.places = places


Apply = Callable[[Sequence[Change], Any], Applied | None]
"""Writes points through the store's own open transaction; what it did not do (None: nothing)."""
