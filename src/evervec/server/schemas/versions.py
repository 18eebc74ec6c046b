"""Which model made which vectors, and whether they agree with the records."""

from __future__ import annotations

from datetime import datetime

from evervec.server.schemas.base import Given, Shown


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
    table: str
    created_at: datetime | None


class VersionsOut(Shown):
    """The embedding versions of each kind."""

    versions: list[VersionOut]


class VerifyIn(Given):
    """Whether to mend what is off, and whether to leave the records' texts unread."""

    repair: bool = False
    quick: bool = False


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
    waiting: int
    failed: int


class VerifyOut(Shown):
    """How far the index is from the records."""

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
