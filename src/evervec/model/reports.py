"""What evervec reports: counts, estimates, progress."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime

from evervec.model.findings import VerifyReport
from evervec.model.usage import Spend


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


@dataclass(frozen=True, slots=True)
class Comparison:
    """The results of a new version compared with the old one's."""

    queries: int
    overlap: float | None
    """the average share of the best `k` that both find; None with nothing to compare"""
    k: int
    report: VerifyReport
    """of the new version"""
