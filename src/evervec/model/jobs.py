"""Jobs and tickets: what is to be done about a record, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    pass


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


class EnqueueResult(NamedTuple):
    """What became of one `enqueue`: its job, or the error that kept it out."""

    job_id: int | None
    is_new: bool
    """False: the record had a job already"""
    error: str | None = None
