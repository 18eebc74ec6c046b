"""What evervec reports: counts, costs, progress, findings."""

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
class Exported:
    """What `export` wrote."""

    records: int
    with_vectors: int
    """records whose vectors are in the file"""
    chunks: int


@dataclass(frozen=True, slots=True)
class Imported:
    """What `import_` did with the records of a file."""

    records: int = 0
    saved: int = 0
    unchanged: int = 0
    """the store had them already"""
    skipped: int = 0
    """the store's own record, or its deletion, is newer"""
    with_vectors: int = 0
    """records whose vectors are of this store's model"""

    def plus(self, other: Imported) -> Imported:
        both = {f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self)}
        return Imported(**both)


@dataclass(frozen=True, slots=True)
class ImportedVectors:
    """What `import_vectors` did with the rows of its files."""

    records: int = 0
    written: int = 0
    """records that are embedded now"""
    refused: int = 0
    """records that changed since the export, or that another worker has embedded or holds; those
    that are not embedded stay in the queue"""
    invalid: int = 0
    """rows whose vectors do not fit their texts, or are zero or not finite"""


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


@dataclass(frozen=True, slots=True)
class Gate:
    """Why a provider is paused for all workers of a store."""

    state: str
    """outage, or limited: it asked for a pause"""
    reason: str
    since: float
    until: float
    """when one of the workers probes it again"""
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Stats:
    """The queue at a glance, for one tenant."""

    pending: int
    processing: int
    done: int
    failed: int
    in_flight: int
    """provider calls of this process in progress"""
    unique_records: int
    """records that wait or are being processed"""
    oldest_pending_seconds: float | None
    average_processing_ms: float | None
    last_processed_at: datetime | None
    paused: bool = False
    """no job is claimed: the whole queue is paused, or the tenant's jobs are"""
    paused_tenants: list[str] = field(default_factory=list)
    """the tenants counted here that are paused individually"""
    gate: Gate | None = None
    """why the provider is paused for all workers, if it is"""
    capped: str | None = None
    """the daily cap that is reached"""
    spent_today: list[Spend] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Backfill:
    """What a backfill found and enqueued, and an estimate of its cost."""

    records: int
    """records without current vectors, and with no job that will make them"""
    rendered: int
    """records whose text changes with the kind's current template"""
    tokens: int
    """of everything to be embedded, at most: unchanged chunks cost nothing"""
    money: float
    enqueued: int
    """0 for a dry run"""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimated cost of embedding records."""

    records: int
    chunks: int
    tokens: int
    money: float
    """at the configured price"""
    seconds: float | None
    """of embedding, at the speed of a sample; None: nothing was embedded to measure it"""


@dataclass(frozen=True, slots=True)
class IndexBuild:
    """The progress of an index that is built in the background."""

    kind: str
    table: str
    done: float
    """from 0 to 1"""
    seconds_left: float | None
    """at the pace so far; None: not known yet"""


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """The progress of a migration."""

    version: str
    """the new version"""
    state: str
    """building, switched, rolled back, finished (the old version is retired), or gone"""
    kinds: tuple[str, ...]
    records: int
    current: int
    """records whose new vectors match their current text"""
    pending: int
    """jobs for the new version that are pending or in progress"""
    failed: int
    behind: int
    """records that the old version has, and the new one lacks or has in an older state"""
    enqueued: bool
    """all records that existed before it began are enqueued"""
    switches_by_itself: bool
    rate: float | None = None
    """jobs of these kinds done per second in the last minutes, for any version; None: none were"""
    seconds_left: float | None = None
    """until the version is built, at that rate; None: not known, or nothing is left"""

    @property
    def complete(self) -> bool:
        """Whether it could be switched now."""
        return self.enqueued and self.behind == 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to wait for: all records behind have failed."""
        return self.enqueued and self.behind <= self.failed

    @property
    def awaits_switch(self) -> bool:
        """Whether it will switch by itself in a moment."""
        return self.complete and self.switches_by_itself

    @property
    def over(self) -> bool:
        """Whether the new version serves, or was given up."""
        return self.state in ("switched", "finished", "gone")

    @property
    def ends_wait(self) -> bool:
        """Whether a wait for the migration ends: nothing is left to embed, and no switch is about
        to happen."""
        return self.over or (self.settled and not self.awaits_switch)


@dataclass(frozen=True, slots=True)
class Sentence:
    """One thing that is to be known about a store."""

    level: str
    """bad: something does not work; warn: it needs attention; info; ok: nothing is wrong"""
    topic: str
    """what it is about: provider, index, workers, queue, tables, failures, lag, quota, streams,
    database, migration or records"""
    text: str
    """the sentence"""
    since: datetime | None = None
    """when it began, if that is known"""
    hint: str | None = None
    """what to do, if there is something to be done"""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """A worker as it last reported."""

    worker: str
    """its name: host and process"""
    version: str
    """of evervec"""
    started_at: datetime
    """when it reported first"""
    seen_at: datetime
    """when it reported last"""
    held: int
    """jobs in progress"""
    done: int
    """jobs that ended since it started"""
    paused: bool = False
    """it was told to finish what it has and to claim nothing"""


FAULTS = ("missing", "stale", "orphaned", "doubled", "misplaced")
"""The faults that `verify` distinguishes."""
QUICK = "quick: vectors were not compared with the texts of their records"
"""What a quick `verify` leaves unchecked."""
_COUNTS = (*FAULTS, "checked", "waiting", "failed")


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
        total = {name: sum(getattr(t, name) for t in tallies) for name in _COUNTS}
        return VerifyReport(
            **total, repaired=self.repaired, troubles=tuple(self.troubles),
            unchecked=tuple(self.unchecked), by=tallies,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of a new version compared with the old one's."""

    queries: int
    overlap: float | None
    """the average share of the best `k` that both find; None with nothing to compare"""
    k: int
    report: VerifyReport
    """of the new version"""
