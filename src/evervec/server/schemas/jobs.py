"""Jobs and attempts."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from evervec.model.jobs import Op, Outcome, Status
from evervec.records.drafts import HIGHEST_PRIORITY
from evervec.server.schemas.base import Given, More, Shown


class PriorityIn(Given):
    """The changeable fields of a job."""

    priority: int = Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, examples=[10])


class JobOut(Shown):
    """The sync state of one record."""

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
    created_at: datetime
    scheduled_for: datetime
    started_at: datetime | None
    completed_at: datetime | None
    lease_expires_at: datetime | None


class JobsOut(Shown):
    """A page of jobs."""

    jobs: list[JobOut]
    cursor: More


class CancelledOut(Shown):
    """The id of the cancelled job."""

    cancelled: int


class AttemptOut(Shown):
    """One attempt of a job."""

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


class HistoryOut(Shown):
    """The attempts of a record, oldest first."""

    attempts: list[AttemptOut]
