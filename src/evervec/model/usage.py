"""What a tenant uses and costs, and the limits that hold for it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime

from evervec.errors import InvalidArgument

OF_QUERIES = ""
"""the kind under which the cost of queries is summed; no kind has this name"""


@dataclass(frozen=True, slots=True)
class Spend:
    """The cost of a provider's calls for one tenant, kind and model on one day (UTC). A call for
    several tenants or kinds is shared among them."""

    day: str
    tenant: str
    kind: str
    """empty: the queries of searches"""
    model: str
    calls: float
    tokens: int
    money: float


MOST_WEIGHT = 100
"""highest weight of a tenant's turn"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may have, and use in a day (UTC). None: the default in the settings; 0:
    unlimited."""

    weight: int | None = None
    """of its turn in the queue; the default is 1"""
    kinds: int | None = None
    records: int | None = None
    bytes: int | None = None
    """of titles, texts, metadata and typed data, in UTF-8"""
    chunks: int | None = None
    tokens: int | None = None
    """per day; beyond it, its jobs wait for the next day"""
    money: float | None = None
    """per day; beyond it, its jobs wait for the next day"""

    def __post_init__(self) -> None:
        for f in fields(self):
            least, most = (1, MOST_WEIGHT) if f.name == "weight" else (0, 1 << 62)
            value = getattr(self, f.name)
            if value is None:
                continue
            whole = isinstance(value, int) or (f.name == "money" and isinstance(value, float))
            if isinstance(value, bool) or not whole or not least <= value <= most:
                noun = "number" if f.name == "money" else "whole number"
                raise InvalidArgument(
                    f"{f.name}: must be a {noun} from {least} to {most}, not {value!r}"
                )

    def or_else(self, defaults: Limits) -> Limits:
        """These limits, with the defaults where nothing is set."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(defaults, **{name: n for name, n in own.items() if n is not None})


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant has, and has used today (UTC), with its limits."""

    tenant: str
    kinds: int
    records: int
    bytes: int
    chunks: int
    """in the serving versions"""
    tokens: int
    """today"""
    money: float
    """today"""
    limits: Limits
    """the limits in force"""
    waits_until: datetime | None = None
    """its jobs wait until then, because its daily quota is used up"""

    def bounds(self) -> dict[str, tuple[float, float]]:
        """For each limit, by name: the amount used, and the limit."""
        return {
            name: (getattr(self, name), bound)
            for name in ("kinds", "records", "bytes", "chunks", "tokens", "money")
            if (bound := getattr(self.limits, name))
        }


@dataclass(frozen=True, slots=True)
class TenantState:
    """A tenant in a list of all."""

    usage: Usage
    own_limits: Limits
    """the limits that are set for it"""
    paused: bool
    """its jobs are not claimed"""
