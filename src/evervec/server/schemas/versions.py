"""Embedding versions, and verification reports."""

from __future__ import annotations

from datetime import datetime

from evervec.server.schemas.base import Given, Shown


class VersionOut(Shown):
    """The vectors of one kind by one model; for a tenant, only those of its records."""

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
    table: str
    created_at: datetime | None


class VersionsOut(Shown):
    """The embedding versions of each kind."""

    versions: list[VersionOut]


class VerifyIn(Given):
    """Whether to repair faults, and whether to skip the comparison with the records' texts."""

    repair: bool = False
    quick: bool = False


class TallyOut(Shown):
    """Faults of one tenant's records of one kind."""

    tenant: str
    kind: str
    checked: int
    missing: int
    stale: int
    orphaned: int
    doubled: int
    misplaced: int
    waiting: int
    failed: int


class VerifyOut(Shown):
    """Differences between the index and the records."""

    missing: int
    stale: int
    orphaned: int
    doubled: int
    misplaced: int
    repaired: int
    checked: int
    waiting: int
    failed: int
    troubles: list[str]
    unchecked: list[str]
    by: list[TallyOut]
