"""What a store did over time, in buckets: by minute, and coarser for longer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, field, fields
from datetime import datetime
from itertools import accumulate

from evervec.telemetry.counters import FRESHNESS

HOUR, DAY = 3600, 86400
STEPS = {60: 3 * HOUR, 600: 2 * DAY, HOUR: 92 * DAY}
"""the lengths of buckets in seconds, and for how many seconds those of each length are kept"""
MOST_POINTS = 2400
"""points in one answer"""
MOST_KINDS = 20
"""kinds of a tenant that are counted by name in a bucket; the others are counted together"""
OTHER_KINDS = ""
"""the name under which the other kinds are counted; no kind has it"""
EVERY_TENANT = ""
"""the name under which all tenants are counted together; no tenant has it"""
BOUNDS = FRESHNESS.bounds
"""upper bounds, in seconds, of the freshness histogram; one more count has no bound"""


@dataclass(slots=True)
class Counts:
    """What is counted in one bucket."""

    done: int = 0
    failed: int = 0
    retried: int = 0
    deleted: int = 0
    embedded: int = 0
    reused: int = 0
    tokens: int = 0
    money: float = 0.0
    fresh: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))

    def add(self, other: Counts) -> None:
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fresh = [mine + theirs for mine, theirs in zip(self.fresh, other.fresh, strict=True)]

    def row(self) -> tuple[float, ...]:
        """The counts as columns, in the order of the fields."""
        *counts, fresh = astuple(self)
        return (*counts, *fresh)

    @classmethod
    def of_row(cls, row: Sequence[float]) -> Counts:
        """Counts from the columns of `row`; some engines sum whole numbers as decimals."""
        made = cls(fresh=[int(count) for count in row[len(_COUNTS) :]])
        for name, count in zip(_COUNTS, row, strict=False):
            setattr(made, name, float(count) if name == "money" else int(count))
        return made


_COUNTS = tuple(f.name for f in fields(Counts))[:-1]


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """What happened in one stretch of time, for one tenant or for all."""

    at: datetime
    """when it began"""
    seconds: int
    """how long it is"""
    done: int = 0
    """jobs that ended well: changes that searches find, deletes included"""
    failed: int = 0
    """jobs that became dead letters"""
    retried: int = 0
    """attempts that failed and are tried again"""
    deleted: int = 0
    """of the jobs that are done, those that removed a record from the index"""
    chunks_embedded: int = 0
    chunks_reused: int = 0
    tokens: int = 0
    """that providers counted"""
    money: float = 0.0
    depth: int | None = None
    """the most jobs that were pending or in progress when they were counted, once a minute; None:
    they were not counted"""
    freshness_p50: float | None = None
    """seconds from the save of a change until searches find it: the median; None: there was none"""
    freshness_p99: float | None = None
    """the same for the slowest hundredth"""
    freshness: tuple[int, ...] = ()
    """the number of changes by these seconds; the bounds are those of the metric
    `evervec_freshness_seconds`"""


def point_of(at: datetime, seconds: int, counts: Counts, depth: int | None) -> HistoryPoint:
    return HistoryPoint(
        at, seconds, counts.done, counts.failed, counts.retried, counts.deleted, counts.embedded,
        counts.reused, counts.tokens, counts.money, depth, percentile(counts.fresh, 0.5),
        percentile(counts.fresh, 0.99), tuple(counts.fresh),
    )  # fmt: skip


def sum_points(points: Iterable[HistoryPoint]) -> HistoryPoint | None:
    """Points that follow each other as one; None if there are none."""
    all_points = list(points)
    if not all_points:
        return None
    total = Counts()
    for p in all_points:
        total.add(Counts(
            p.done, p.failed, p.retried, p.deleted, p.chunks_embedded, p.chunks_reused, p.tokens,
            p.money, list(p.freshness),
        ))  # fmt: skip
    depths = [p.depth for p in all_points if p.depth is not None]
    seconds = sum(p.seconds for p in all_points)
    return point_of(all_points[0].at, seconds, total, max(depths, default=None))


def percentile(counts: Sequence[int], share: float) -> float | None:
    """The value below which this share of the values is, estimated from the counts of a histogram.
    What is beyond the last bound counts as that bound."""
    total = sum(counts)
    if not total:
        return None
    wanted = share * total
    for place, upto in enumerate(accumulate(counts)):
        if upto >= wanted and counts[place]:
            break
    if place == len(BOUNDS):
        return BOUNDS[-1]
    low = BOUNDS[place - 1] if place else 0.0
    within = (wanted - (upto - counts[place])) / counts[place]
    return low + (BOUNDS[place] - low) * max(0.0, min(1.0, within))
