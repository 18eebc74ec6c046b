"""The queue as a whole: statistics, and operations on many jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import Field

from evervec.server.schemas.base import Given, Shown


class GateOut(Shown):
    """Why the provider is paused."""

    state: str
    reason: str
    since: float
    until: float
    tries: int


class SpendOut(Shown):
    """Provider calls, tokens and cost of a day."""

    day: str
    tenant: str
    kind: str
    model: str
    calls: float
    tokens: int
    money: float


class StatsOut(Shown):
    """Statistics of the queue."""

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
    """Which failed jobs to retry."""

    max_retries: int | None = Field(
        None, ge=0, lt=1 << 31, description="only those with fewer attempts"
    )


class RetriedOut(Shown):
    """Number of retried jobs."""

    retried: int


class RecoverIn(Given):
    """Which jobs to recover."""

    threshold: float | None = Field(
        None, ge=0, lt=1e10, allow_inf_nan=False,
        description="also those claimed more than so many seconds ago",
    )  # fmt: skip


class RecoveredOut(Shown):
    """Number of recovered jobs."""

    recovered: int


class PurgeIn(Given):
    """Which done or failed jobs to purge."""

    status: Literal["done", "failed"]
    older_than: float = Field(
        7 * 86400.0,
        ge=0,
        lt=1e10,
        allow_inf_nan=False,
        description="minimum seconds since their end",
    )
    boxed: bool = Field(False, description="with failed: also those that hold a boxed record")


class PurgedOut(Shown):
    """Number of purged jobs."""

    purged: int


class PausedOut(Shown):
    """Whether the queue is paused."""

    paused: bool
