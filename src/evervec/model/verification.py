"""Verifications that a service runs: their progress, and the last result by kind."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from evervec.model.findings import COUNTS, FAULTS, Tally, VerifyReport

if TYPE_CHECKING:
    from evervec.model.records import Version

_MOST_KINDS = 500
_MOST_PLACES = 20
_MOST_MESSAGES = 20
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class VerifyRun:
    """One verification, from its start to its end. Times are seconds since the epoch."""

    id: str
    agent: str
    """who started it"""
    key_id: str | None
    started_at: float
    seen_at: float
    """when the process that runs it last reported"""
    state: str = "waiting"
    """waiting, running, done, cancelled or failed"""
    quick: bool = False
    repair: bool = False
    kind: str | None = None
    """None: all kinds"""
    faults: tuple[str, ...] = ()
    """what is repaired; empty: everything"""
    total: int = 0
    """records to check, approximately"""
    checked: int = 0
    began_at: float | None = None
    """when it left the state waiting"""
    ended_at: float | None = None
    repaired: int = 0
    cancelled_by: str | None = None
    error: str | None = None
    """why it failed, for platform admins"""
    tenant_error: str | None = None
    """why it failed, for tenants"""

    @property
    def over(self) -> bool:
        return self.state not in ("waiting", "running")

    def rate(self, now: float) -> float | None:
        """Records a second; None: not known yet."""
        if self.began_at is None or not self.checked:
            return None
        seconds = (self.ended_at or now) - self.began_at
        return self.checked / seconds if seconds > 0 else None

    def seconds_left(self, now: float) -> float | None:
        rate = self.rate(now)
        return None if rate is None else max(0, self.total - self.checked) / rate

    @classmethod
    def load(cls, text: str) -> VerifyRun:
        read: dict[str, Any] = json.loads(text)
        return cls(**{**read, "faults": tuple(read["faults"])})

    def dump(self) -> str:
        return json.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class VerifiedKind:
    """The last result for the records of one kind."""

    kind: str
    """empty: vectors of versions that the store does not know"""
    at: float
    missing: int = 0
    stale: int = 0
    orphaned: int = 0
    doubled: int = 0
    misplaced: int = 0
    checked: int = 0
    waiting: int = 0
    failed: int = 0
    repaired: tuple[str, ...] = ()
    """the faults that were repaired when they were found"""

    @property
    def wrong(self) -> int:
        """Records with faults that were not repaired."""
        return sum(getattr(self, fault) for fault in FAULTS if fault not in self.repaired)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What verifications found, by kind, the worst first."""

    at: float
    agent: str
    quick: bool
    kinds: tuple[VerifiedKind, ...] = ()
    more_kinds: int = 0
    """kinds that are not listed: these have the fewest faults"""
    worst: tuple[Tally, ...] = ()
    """tenants with the most faults, of a verification of all tenants"""
    troubles: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()
    part_at: float | None = None
    """when some of its kinds were last verified alone"""

    @property
    def complete(self) -> bool:
        """Whether the index held exactly the latest version of every record."""
        rows = any(row.wrong or row.repaired or row.waiting or row.failed for row in self.kinds)
        return not (rows or self.more_kinds or self.troubles or self.unchecked)

    @property
    def wrong(self) -> bool:
        """Whether something is wrong that was not repaired."""
        return bool(self.troubles or any(row.wrong for row in self.kinds))

    def after(self, run: VerifyRun, report: VerifyReport, at: float) -> VerifyResult:
        """This result, after a verification of a single kind."""
        new = [row for row in _by_kind(run, report, at) if row.kind == run.kind]
        rest = [row for row in self.kinds if row.kind != run.kind]
        return replace(self, kinds=_worst_first([*rest, *new]), part_at=at)

    @classmethod
    def of(cls, run: VerifyRun, report: VerifyReport, at: float) -> VerifyResult:
        """The result of a verification of all kinds."""
        kinds = _worst_first(_by_kind(run, report, at))
        wrong = sorted((t for t in report.by if _faults(t)), key=_faults, reverse=True)
        return cls(
            at, run.agent, run.quick, kinds[:_MOST_KINDS], max(0, len(kinds) - _MOST_KINDS),
            tuple(wrong[:_MOST_PLACES]), _clipped(report.troubles), _clipped(report.unchecked),
        )  # fmt: skip

    @classmethod
    def load(cls, text: str) -> VerifyResult:
        read: dict[str, Any] = json.loads(text)
        kinds = [{**row, "repaired": tuple(row["repaired"])} for row in read["kinds"]]
        read["kinds"] = tuple(VerifiedKind(**row) for row in kinds)
        read["worst"] = tuple(Tally(**row) for row in read["worst"])
        for name in ("troubles", "unchecked"):
            read[name] = tuple(read[name])
        return cls(**read)

    def dump(self) -> str:
        return json.dumps(asdict(self))


def _by_kind(run: VerifyRun, report: VerifyReport, at: float) -> list[VerifiedKind]:
    counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for tally in report.by:
        for name in COUNTS:
            counts[tally.kind][name] += getattr(tally, name)
    repaired = (run.faults or FAULTS) if run.repair else ()
    return [
        VerifiedKind(kind, at, **found, repaired=tuple(f for f in repaired if found[f]))
        for kind, found in counts.items()
    ]


def _worst_first(rows: Iterable[VerifiedKind]) -> tuple[VerifiedKind, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.wrong, row.kind)))


def _faults(tally: Tally) -> int:
    return sum(getattr(tally, fault) for fault in FAULTS)


def _clipped(messages: Iterable[str]) -> tuple[str, ...]:
    found = [message[:_LONGEST_MESSAGE] for message in messages]
    more = len(found) - _MOST_MESSAGES
    return (*found[:_MOST_MESSAGES], *([f"and {more:,} more"] if more > 0 else []))


def repair_target(kind: str | None, faults: Iterable[str] | None) -> str:
    """What a repair is limited to, for the audit log."""
    return " ".join(part for part in (", ".join(faults or ()), kind and f"of kind {kind}") if part)


def records_to_check(versions: Iterable[Version], kind: str | None = None) -> int:
    """Approximate number of records that `verify` compares, once for each version in use."""
    return sum(
        v.items for v in versions if v.state != "retired" and (kind is None or v.kind == kind)
    )
