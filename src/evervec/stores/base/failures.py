"""Protocol of the part that keeps groups of failures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from evervec.model.failures import FailureCounts, FailureGroup

GroupKey = tuple[str, str]
"""tenant and fingerprint"""


class Failures(Protocol):
    """The part that keeps groups of failures: at most some hundred of each tenant."""

    def add(self, counted: Mapping[GroupKey, FailureCounts]) -> None:
        """Add to the groups. Of a tenant with too many, those that were not seen for longest are
        dropped."""

    def groups(
        self, tenant: str | None, *, kind: str | None, dismissed: bool, limit: int
    ) -> list[FailureGroup]:
        """The latest groups of a tenant, or of all; `dismissed`: also those that were dismissed and
        have not failed since."""

    def dismiss(self, tenant: str | None, fingerprint: str) -> int:
        """Hide a group until it fails again; returns how many tenants have it."""

    def purge(self, before: float) -> int:
        """Purge groups that were last seen before, and counts that are no longer kept."""
