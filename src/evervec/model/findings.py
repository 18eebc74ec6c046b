"""What `verify` finds: the faults of records, by tenant and kind."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field

FAULTS = ("missing", "stale", "orphaned", "doubled", "misplaced")
"""The faults that `verify` distinguishes."""
QUICK = "quick: vectors were not compared with the texts of their records"
"""What a quick `verify` leaves unchecked."""
COUNTS = (*FAULTS, "checked", "waiting", "failed")
"""What is counted for each tenant and kind."""


@dataclass(frozen=True, slots=True)
class Tally:
    """The findings of `verify` for one tenant's records of one kind."""

    tenant: str
    kind: str
    """empty for points of a version that the store does not know"""
    checked: int = 0
    missing: int = 0
    stale: int = 0
    orphaned: int = 0
    doubled: int = 0
    misplaced: int = 0
    waiting: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The differences between index and records. Counts are of records, not chunks."""

    missing: int
    """records with no vectors, or with some missing"""
    stale: int
    """records whose points are of an older change or another text, or were altered, and that no job
    will renew"""
    orphaned: int
    """deleted records that still have points, or records with points that they should not have"""
    doubled: int
    """records with a chunk in the index more than once"""
    repaired: int
    checked: int = 0
    """live records that were compared with the index"""
    misplaced: int = 0
    """records with points of a version that is retired, or that the store does not know"""
    waiting: int = 0
    """records that were not compared, because a job for them is pending or in progress"""
    failed: int = 0
    """records whose job is a dead letter"""
    troubles: tuple[str, ...] = ()
    """problems that do not concern single records, such as a table without its triggers"""
    unchecked: tuple[str, ...] = ()
    """what was not compared, and why"""
    by: tuple[Tally, ...] = ()
    """the counts by tenant and kind"""

    @property
    def clean(self) -> bool:
        """Whether nothing wrong was found in what was checked; `complete` says whether that was
        all."""
        return not self.found

    @property
    def complete(self) -> bool:
        """Whether the index holds exactly the latest version of every record: nothing is wrong, no
        job is pending or failed, and everything was checked."""
        return self.clean and not (self.waiting or self.failed or self.unchecked)

    @property
    def faults(self) -> dict[str, int]:
        """The faults of records, and how often each occurs."""
        return {name: count for name in FAULTS if (count := getattr(self, name))}

    @property
    def found(self) -> dict[str, int]:
        """Everything wrong: the faults of records, and the number of troubles."""
        return self.faults | ({"troubles": len(self.troubles)} if self.troubles else {})


@dataclass(slots=True)
class Findings:
    """The findings of a `verify` in progress."""

    counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """by tenant, kind and the name of the count"""
    troubles: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    repaired: int = 0

    def report(self) -> VerifyReport:
        by: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        for (tenant, kind, name), count in sorted(self.counts.items()):
            by[tenant, kind][name] = count
        tallies = tuple(Tally(tenant, kind, **found) for (tenant, kind), found in by.items())
        total = {name: sum(getattr(t, name) for t in tallies) for name in COUNTS}
        return VerifyReport(
            **total, repaired=self.repaired, troubles=tuple(self.troubles),
            unchecked=tuple(self.unchecked), by=tallies,
        )  # fmt: skip
