"""What a tenant may have and use, and what it has."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from evervec.model.reports import MOST_WEIGHT
from evervec.server.schemas.base import BigInt, Given, Shown


class LimitsIn(Given):
    """What is set for one tenant, in the place of all that was set for it before. What is left
    out, or null, is as the service's settings say for all tenants; 0: no bound."""

    weight: int | None = Field(
        None, ge=1, le=MOST_WEIGHT, description="of its turn in the queue, beside 1 for others"
    )
    kinds: BigInt | None = None
    records: BigInt | None = None
    bytes: BigInt | None = Field(None, description="of titles, texts and metadata")
    chunks: BigInt | None = None
    tokens: BigInt | None = Field(None, description="a day (UTC)")
    money: float | None = Field(None, ge=0, le=1e15, description="a day (UTC)")


class LimitsOut(Shown):
    """What a tenant may have; 0: no bound."""

    weight: int | None
    kinds: int | None
    records: int | None
    bytes: int | None
    chunks: int | None
    tokens: int | None
    money: float | None


class UsageOut(Shown):
    """What a tenant has, and used today (UTC), beside what it may."""

    tenant: str
    kinds: int
    records: int
    bytes: int
    chunks: int
    tokens: int
    money: float
    limits: LimitsOut
    waits_until: datetime | None = Field(
        description="its jobs wait till then: what it may use in a day is used up"
    )
