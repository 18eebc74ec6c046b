"""Limits and usage of tenants."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from evervec.model.reports import MOST_WEIGHT
from evervec.server.schemas.base import BigInt, Given, Shown


class LimitsIn(Given):
    """The limits of one tenant; they replace all previous ones. Omitted or null: the service's
    setting for all tenants; 0: no limit."""

    weight: int | None = Field(
        None,
        ge=1,
        le=MOST_WEIGHT,
        description="share of the queue, relative to other tenants (1 by default)",
    )
    kinds: BigInt | None = None
    records: BigInt | None = None
    bytes: BigInt | None = Field(None, description="of titles, texts and metadata")
    chunks: BigInt | None = None
    tokens: BigInt | None = Field(None, description="per day (UTC)")
    money: float | None = Field(None, ge=0, le=1e15, description="per day (UTC)")


class LimitsOut(Shown):
    """The limits of a tenant; 0: no limit."""

    weight: int | None
    kinds: int | None
    records: int | None
    bytes: int | None
    chunks: int | None
    tokens: int | None
    money: float | None


class UsageOut(Shown):
    """A tenant's usage, including today's (UTC), and its limits."""

    tenant: str
    kinds: int
    records: int
    bytes: int
    chunks: int
    tokens: int
    money: float
    limits: LimitsOut
    waits_until: datetime | None = Field(
        description="its jobs wait until then, because the daily quota is used up"
    )
