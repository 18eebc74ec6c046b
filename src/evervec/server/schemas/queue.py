"""The queue as a whole: its numbers, and what is done to many jobs at once."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from evervec.server.schemas.base import Given, Shown


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


class RetryFailedIn(Given):
    """Which failed jobs start anew."""

    max_retries: int | None = Field(
        None, ge=0, lt=1 << 31, description="only those with fewer attempts"
    )


class RetriedOut(Shown):
    """How many failed jobs start anew."""

    retried: int


class RecoverIn(Given):
    """Which jobs are taken back."""

    threshold: float | None = Field(
        None, ge=0, lt=1e10, allow_inf_nan=False,
        description="also those that were claimed so many seconds ago",
    )  # fmt: skip


class RecoveredOut(Shown):
    """How many jobs were taken back."""

    recovered: int


class PurgeIn(Given):
    """Which settled jobs are dropped."""

    status: Literal["done", "failed"]
    older_than: float = Field(
        7 * 86400.0, ge=0, lt=1e10, allow_inf_nan=False, description="seconds since their end"
    )
    boxed: bool = Field(False, description="of failed ones: also those that carry a record")


class PurgedOut(Shown):
    """How many jobs were dropped."""

    purged: int


class PausedOut(Shown):
    """Whether workers claim nothing."""

    paused: bool
