"""Protocol of the part that keeps what a store did over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from evervec.model.history import Counts


class BucketKey(NamedTuple):
    """Which bucket something is counted in."""

    at: int
    """the minute, in seconds since the epoch"""
    tenant: str
    kind: str


class Bucket(NamedTuple):
    """What was counted in a stretch of time."""

    at: int
    counts: Counts
    depth: int | None


class History(Protocol):
    """The part that keeps counts over time. Their cost does not depend on the size of any table."""

    def add(self, counted: Mapping[BucketKey, Counts], lane: int = 0) -> None:
        """Add to the buckets of each length, of the tenants and of all together. Writers in
        different lanes never wait for each other."""

    def sample_depths(self, most: int) -> None:
        """Note how many jobs are pending or in progress now; for at most so many tenants."""

    def buckets(
        self, tenant: str | None, kind: str | None, step: int, since: int, until: int
    ) -> list[Bucket]:
        """The buckets of one length that are not empty, from `since` to before `until`, in order;
        without a tenant, of all together."""

    def purge(self) -> int:
        """Purge the oldest bucket of each length that is no longer kept; returns how many rows. 0:
        none is left."""
