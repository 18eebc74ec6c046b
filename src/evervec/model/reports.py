"""What evervec tells of itself: counts, costs, progress, findings."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from evervec.errors import InvalidArgument


@dataclass(frozen=True, slots=True)
class ProcessResult:
    """What `process_all` did. `failed` counts jobs that became dead letters."""

    processed: int
    succeeded: int
    failed: int
    errors: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Spend:
    """What a provider's calls for one tenant, kind and model came to on one day (UTC). A call
    for several tenants or kinds counts for each by its share."""

    day: str
    tenant: str
    kind: str
    model: str
    calls: float
    tokens: int
    money: float


MOST_WEIGHT = 100
"""of a tenant's turn"""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a tenant may have, and use in a day (UTC). None: as the settings say for all tenants;
    0: as much as it likes."""

    weight: int | None = None
    """of its turn in the queue, beside 1 for others"""
    kinds: int | None = None
    records: int | None = None
    bytes: int | None = None
    """of titles, texts, metadata and typed data, in UTF-8"""
    chunks: int | None = None
    tokens: int | None = None
    """a day; then its jobs wait for the next"""
    money: float | None = None
    """a day; then its jobs wait for the next"""

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
        """With the defaults where nothing is set."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(defaults, **{name: n for name, n in own.items() if n is not None})


@dataclass(frozen=True, slots=True)
class Usage:
    """What a tenant has, and has used today (UTC), beside what it may."""

    tenant: str
    kinds: int
    records: int
    bytes: int
    chunks: int
    """in the versions that serve"""
    tokens: int
    """today"""
    money: float
    """today"""
    limits: Limits
    """as they are in force"""
    waits_until: datetime | None = None
    """its jobs wait till then: what it may use in a day is used up"""

    def bounds(self) -> dict[str, tuple[float, float]]:
        """By name, of what is bounded: how much there is, and how much there may be."""
        return {
            name: (getattr(self, name), bound)
            for name in ("kinds", "records", "bytes", "chunks", "tokens", "money")
            if (bound := getattr(self.limits, name))
        }


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a provider is left alone for now, by all workers of a store."""

    state: str
    """outage, or limited: it asked for a pause"""
    reason: str
    since: float
    until: float
    """when one of the workers tries it again"""
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Stats:
    """The queue at a glance, for one tenant."""

    pending: int
    processing: int
    done: int
    failed: int
    in_flight: int
    """provider calls of this process under way"""
    unique_records: int
    """records that wait or are being processed"""
    oldest_pending_seconds: float | None
    average_processing_ms: float | None
    last_processed_at: datetime | None
    paused: bool = False
    """no job is claimed: all are held back, or the tenant's are"""
    paused_tenants: list[str] = field(default_factory=list)
    """those that are paused by themselves, among the tenants that are counted here"""
    gate: Gate | None = None
    """why the provider is left alone by all workers, if it is"""
    capped: str | None = None
    """which of the day's caps is reached"""
    spent_today: list[Spend] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill found and enqueued, and an estimate of what it takes."""

    records: int
    """without current vectors, and with no job that will make them"""
    rendered: int
    """whose text is another one by the kind's present template"""
    tokens: int
    """of all that is to be embedded, at most: unchanged chunks cost nothing"""
    money: float
    enqueued: int
    """0 for a dry run"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a migration would take."""

    records: int
    chunks: int
    tokens: int
    money: float
    """by the price that is set"""
    seconds: float
    """of embedding, at the pace of a sample"""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """How far a migration has come."""

    version: str
    """the new one"""
    state: str
    """building, switched, rolled back, finished (the old version is retired), or gone"""
    kinds: tuple[str, ...]
    records: int
    current: int
    """records whose new vectors are of their present text"""
    pending: int
    """jobs for the new version that wait or are being done"""
    failed: int
    behind: int
    """records that the old version has, and the new one lacks or has in an older state"""
    enqueued: bool
    """all that was there before it began is enqueued"""
    switches_by_itself: bool

    @property
    def complete(self) -> bool:
        """It could be switched now."""
        return self.enqueued and self.behind == 0

    @property
    def settled(self) -> bool:
        """Nothing is left to wait for: what is behind has failed."""
        return self.enqueued and self.behind <= self.failed

    @property
    def awaits_switch(self) -> bool:
        """It will be switched by itself in a moment."""
        return self.complete and self.switches_by_itself

    @property
    def over(self) -> bool:
        """The new version serves, or is given up."""
        return self.state in ("switched", "finished", "gone")


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as it last said of itself."""

    worker: str
    version: str
    """of evervec"""
    started_at: datetime
    seen_at: datetime
    held: int
    """jobs in its hands"""
    done: int
    """jobs that ended there since it began"""


FAULTS = ("missing", "stale", "orphaned", "doubled", "misplaced")
"""What `verify` tells apart."""
QUICK = "quick: vectors were not compared with the texts of their records"
"""What a quick `verify` leaves unchecked."""
_COUNTS = (*FAULTS, "checked", "waiting", "failed")


@dataclass(frozen=True, slots=True)
class Tally:
    """What `verify` found of one tenant's records of one kind."""

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
    """How far the index is from the records. Records are counted, not chunks."""

    missing: int
    """records with no vectors, or with some missing"""
    stale: int
    """records whose points are of an older change or of another text or were altered, and that no
    job will renew"""
    orphaned: int
    """records that are gone but still have points, or have points they should not"""
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
    """what is wrong and is not about single records, such as a table without its triggers"""
    unchecked: tuple[str, ...] = ()
    """what was not compared, and why"""
    by: tuple[Tally, ...] = ()
    """the counts by tenant and kind"""

    @property
    def clean(self) -> bool:
        """Nothing wrong was found in what was checked; `complete` says whether that was all."""
        return not self.found

    @property
    def complete(self) -> bool:
        """The index holds exactly the latest version of every record: nothing is wrong, nothing
        waits or failed, and everything was checked."""
        return self.clean and not (self.waiting or self.failed or self.unchecked)

    @property
    def faults(self) -> dict[str, int]:
        """What is wrong with records, and how often."""
        return {name: count for name in FAULTS if (count := getattr(self, name))}

    @property
    def found(self) -> dict[str, int]:
        """All that is wrong: the faults of records, and how many troubles there are."""
        return self.faults | ({"troubles": len(self.troubles)} if self.troubles else {})


@dataclass(slots=True)
class Findings:
    """What a `verify` that is under way has found so far."""

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
        total = {name: sum(getattr(t, name) for t in tallies) for name in _COUNTS}
        return VerifyReport(
            **total, repaired=self.repaired, troubles=tuple(self.troubles),
            unchecked=tuple(self.unchecked), by=tallies,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a new version answers beside the old one."""

    queries: int
    overlap: float | None
    """the share of the best `k` that both find, on average; None with nothing to compare"""
    k: int
    report: VerifyReport
    """of the new version"""
