"""Jobs and tickets: the work that a record needs, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple


class Status(StrEnum):
    """The status of a job."""

    PENDING = "pending"
    PROCESSING = "processing"
    DONE = "done"
    FAILED = "failed"


class Op(StrEnum):
    """What a job has to do for its record."""

    EMBED = "embed"
    """embed the record's own text"""
    OPEN = "open"
    """embed the boxed record that the job carries, then make it visible"""
    LOAD = "load"
    """fetch the row through the kind's loader, embed it, then make it visible"""
    DELETE = "delete"
    """remove the record's points from the index"""


class Outcome(StrEnum):
    """How one attempt at a job ended."""

    DONE = "done"
    RETRY = "retry"
    FAILED = "failed"
    CRASHED = "crashed"


@dataclass(frozen=True, slots=True)
class Ticket:
    """The receipt of a change: wait for it, or search `after` it."""

    kind: str
    id: str
    job_id: int
    seq: int
    accepted: bool = True
    """False: `version=` was not newer than the last one, so nothing changed"""
    is_new: bool = True
    """False: the record existed before"""
    enqueued: bool = True
    """False: no work was needed, because nothing changed"""


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
    """the store's internal number of the record"""
    version: int = field(repr=False, default=0)
    """the store's internal number of the embedding version"""
    worker: str | None = field(repr=False, default=None)
    """the worker that claimed it last"""
    crashes: int = field(repr=False, default=0)
    """claims of this job that ended with the death of their worker"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a job, kept as its history."""

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
    embedded_at: datetime | None = None
    """when its last chunk was embedded, if one had to be"""
    embedding_version: str = ""
    """the embedding version that it was for; empty: no embedder has made vectors of the kind yet, or
    the version is gone"""


@dataclass(frozen=True, slots=True)
class TimelineEvent:
    """One step on the way of a change to the index."""

    at: datetime
    """when it happened, or will"""
    what: str
    """saved, due (not yet), claimed, embedded, searchable, removed, retried, failed or crashed"""
    attempt: int | None = None
    """of which attempt"""
    seconds: float | None = None
    """since the event before it"""
    worker: str | None = None
    """who did it"""
    error: str | None = None


class EnqueueResult(NamedTuple):
    """The outcome of one `enqueue`: its job, or the error that refused it."""

    job_id: int | None
    is_new: bool
    """False: the record already had a job"""
    error: str | None = None
