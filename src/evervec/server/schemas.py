"""The shapes of bodies and answers: what OpenAPI shows, and what is checked.

Answers are made from the library's own values by their names; what must not leave the
service (a job's token) is not named here.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from evervec.model import Op, Outcome, Status

Json = dict[str, Any]
BigInt = Annotated[int, Field(ge=0, lt=1 << 63)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
MOST_AT_ONCE = 1000
LONGEST_WAIT = 300.0


class Given(BaseModel):
    """A body: what is unknown in it is refused, so that a typo is noticed."""

    model_config = ConfigDict(extra="forbid", strict=False)


class RecordIn(Given):
    """A record to add: its text, or the object of a typed kind as `data`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "note",
                    "id": "tea",
                    "text": "Tea is grown on hills in Assam.",
                    "metadata": {"topic": "plants"},
                }
            ]
        }
    )

    kind: str = Field(min_length=1)
    text: str | None = None
    data: Json | None = Field(None, description="of a kind with a model, in place of `text`")
    id: str | int | None = Field(None, description="a UUIDv7 is made when there is none")
    title: str | None = None
    metadata: Json | None = None
    weight: float | None = Field(None, ge=0, le=1)
    priority: int = Field(0, ge=-(1 << 31), lt=1 << 31)
    delay: float = Field(0.0, ge=0, lt=1e10, allow_inf_nan=False)
    max_attempts: int | None = Field(None, ge=1, lt=1 << 31)
    version: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    boxed: bool = Field(False, description="it appears only once embedded")


class TicketIn(Given):
    """A ticket, as adding or deleting gave it."""

    kind: str = Field(min_length=1)
    id: str = Field(min_length=1)
    job_id: BigInt
    seq: BigInt
    accepted: bool = True
    is_new: bool = True
    enqueued: bool = True
    status: Status | None = None
    error: str | None = None


class SearchIn(Given):
    """A question."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "where is tea grown", "k": 3, "filter": {"topic": "plants"}}]
        }
    )

    query: str = Field(min_length=1)
    k: int = Field(10, ge=1, le=MOST_AT_ONCE)
    kind: str | None = Field(None, min_length=1)
    mode: Literal["hybrid", "semantic", "text"] = "hybrid"
    filter: Json | None = Field(None, examples=[{"topic": "plants", "year": {"gte": 2020}}])
    after: TicketIn | None = Field(None, description="answer only once this change can be found")
    wait: float = Field(5.0, ge=0, le=LONGEST_WAIT, description="seconds to wait for `after`")


class WaitIn(Given):
    """A change to wait for."""

    ticket: TicketIn
    wait: float = Field(30.0, ge=0, le=LONGEST_WAIT)


class PriorityIn(Given):
    """What of a job can be changed."""

    priority: int = Field(ge=-(1 << 31), lt=1 << 31, examples=[10])


class RetryFailedIn(Given):
    """Which failed jobs start anew."""

    max_retries: int | None = Field(
        None, ge=0, lt=1 << 31, description="only those with fewer attempts"
    )


class RecoverIn(Given):
    """Which jobs are taken back."""

    threshold: float | None = Field(
        None, ge=0, lt=1e10, allow_inf_nan=False,
        description="also those that were claimed so many seconds ago",
    )  # fmt: skip


class PurgeIn(Given):
    """Which settled jobs are dropped."""

    status: Literal["done", "failed"]
    older_than: float = Field(
        7 * 86400.0, ge=0, lt=1e10, allow_inf_nan=False, description="seconds since their end"
    )
    boxed: bool = Field(False, description="of failed ones: also those that carry a record")


class MigrationIn(Given):
    """Which model to change to."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"embedder": "openai:text-embedding-3-large"}]}
    )

    embedder: str = Field(min_length=1, description="by its name, as `evervec.open` takes it")
    version: str | None = Field(None, description="what to call the new version")
    kind: str | None = Field(None, description="only this kind")
    switch: bool = Field(False, description="by itself, once it is complete and checked")


class StepIn(Given):
    """How to take a step."""

    force: bool = Field(False, description="switch, whatever the new version lacks")


class VerifyIn(Given):
    """Whether to mend what is off."""

    repair: bool = False


class Shown(BaseModel):
    """An answer, made from a value of the library."""

    model_config = ConfigDict(from_attributes=True)


class TicketOut(Shown):
    """The receipt of a change: wait for it, or search not older than it."""

    kind: str
    id: str
    job_id: int
    seq: int
    accepted: bool = Field(description="false: `version` was not newer, so nothing changed")
    is_new: bool
    enqueued: bool = Field(description="false: nothing was to do, because nothing changed")
    status: Status | None = Field(None, description="where the change stood when a wait ended")
    error: str | None = Field(None, description="why it failed, if it did")


class RecordOut(Shown):
    """A record as it is now."""

    tenant: str
    kind: str
    id: str
    seq: int
    title: str | None
    text: str
    metadata: Json
    weight: float
    created_at: datetime
    updated_at: datetime
    embedded: bool = Field(description="its current version is in the index")


class RecordsOut(Shown):
    """A page of records."""

    records: list[RecordOut]
    cursor: str | None = Field(description="give it to get the next page; null: this is the last")


class HitOut(Shown):
    """A search result."""

    kind: str
    id: str
    title: str | None
    text: str
    similarity: float | None
    relevance: float
    metadata: Json
    via: str


class HitsOut(Shown):
    """Search results, best first, with how they were found."""

    hits: list[HitOut]
    via: str
    version: str | None


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
    cursor: str | None = Field(description="give it to get the next page; null: this is the last")


class AttemptOut(Shown):
    """One try at a job."""

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
    """What was tried for a record, oldest first."""

    attempts: list[AttemptOut]


class GateOut(Shown):
    """Why the provider is left alone for now."""

    state: str
    reason: str
    since: float
    until: float
    tries: int


class SpendOut(Shown):
    """What provider calls came to on a day."""

    day: str
    tenant: str
    kind: str
    model: str
    calls: float
    tokens: int
    money: float


class StatsOut(Shown):
    """The queue at a glance."""

    pending: int
    processing: int
    done: int
    failed: int
    in_flight: int
    unique_records: int
    oldest_pending_seconds: float | None
    average_processing_ms: float | None
    last_processed_at: datetime | None
    paused: bool
    paused_tenants: list[str]
    gate: GateOut | None
    capped: str | None
    spent_today: list[SpendOut]


class VersionOut(Shown):
    """One kind's vectors made by one model; of a tenant, what they hold of its records."""

    name: str
    kind: str
    provider: str
    model: str
    dimensions: int
    state: str
    items: int
    last_sync_at: datetime | None
    chunker: str
    template: str


class MigrationOut(Shown):
    """How far a change of the model has come."""

    version: str
    state: str
    kinds: list[str]
    records: int
    current: int
    pending: int
    failed: int
    behind: int
    enqueued: bool
    switches_by_itself: bool


class VersionsOut(Shown):
    """The embedding versions of each kind."""

    versions: list[VersionOut]


class TallyOut(Shown):
    """What is wrong with one tenant's records of one kind."""

    tenant: str
    kind: str
    checked: int
    missing: int
    stale: int
    orphaned: int
    doubled: int
    misplaced: int


class VerifyOut(Shown):
    """How far the index is from the records."""

    missing: int
    stale: int
    orphaned: int
    doubled: int
    misplaced: int
    repaired: int
    checked: int
    by: list[TallyOut]


class RetriedOut(Shown):
    """How many failed jobs start anew."""

    retried: int


class RecoveredOut(Shown):
    """How many jobs were taken back."""

    recovered: int


class PurgedOut(Shown):
    """How many jobs were dropped."""

    purged: int


class PausedOut(Shown):
    """Whether workers claim nothing."""

    paused: bool


class CancelledOut(Shown):
    """The job that is no more."""

    cancelled: int


class PartOut(Shown):
    """How one part of the service does."""

    ok: bool
    detail: str


class ReadyOut(Shown):
    """How the service does, part by part. Without index or provider it takes records and answers
    from text, so it is degraded, not down."""

    status: Literal["ready", "degraded", "down"]
    store: PartOut
    index: PartOut
    provider: PartOut


class AliveOut(Shown):
    """The process answers."""

    status: Literal["ok"]
