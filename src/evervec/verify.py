"""Verify: does the index hold exactly the latest version of every record, once?

Store and index are walked side by side in order of the records' numbers, a slice at a
time. What a job is about to settle is left out, so it can run beside workers; a slice
that looks wrong is looked at again before it is reported.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from evervec.indexes.base import Held, Index
from evervec.model import VerifyReport
from evervec.stores.base import Collection, Expected, Store

_SLICE = 2000


@dataclass(slots=True)
class _Findings:
    """Records of one slice that are not as they should be."""

    missing: set[int] = field(default_factory=set)
    stale: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    orphans: list[Held] = field(default_factory=list)

    @property
    def orphaned(self) -> set[int]:
        return {point.record for point in self.orphans}

    def both(self, other: _Findings) -> _Findings:
        """What was wrong at both looks."""
        seen = {(p.record, p.tenant, p.hash) for p in other.orphans}
        return _Findings(
            self.missing & other.missing,
            self.stale & other.stale,
            self.doubled & other.doubled,
            [p for p in self.orphans if (p.record, p.tenant, p.hash) in seen],
        )

    def __bool__(self) -> bool:
        return bool(self.missing or self.stale or self.doubled or self.orphans)


def verify(
    store: Store,
    index: Index,
    tenant: str | None,
    *,
    repair: bool = False,
    versions: Container[int] | None = None,
) -> VerifyReport:
    """Compare all collections that serve or are being built, or some `versions`; `repair` mends
    just what is off: it takes out orphans at once and enqueues the rest."""
    checked = repaired = 0
    counts = dict.fromkeys(("missing", "stale", "orphaned", "doubled"), 0)
    for collection in store.collections():
        if collection.state == "retired" or (versions and collection.version not in versions):
            continue
        for after, upto, expected in _slices(store, collection, tenant):
            checked += sum(record.live for record in expected)
            findings = _compare(expected, index.held(collection.version, tenant, after, upto))
            if findings:  # a worker may have been between the two looks
                again = store.expected(tenant, collection.version, after, len(expected) or 1)
                if upto is not None:
                    again = [record for record in again if record.record <= upto]
                held = index.held(collection.version, tenant, after, upto)
                findings = findings.both(_compare(again, held))
            for name in counts:
                counts[name] += len(getattr(findings, name))
            if repair and findings:
                repaired += _mend(store, index, collection, findings)
    return VerifyReport(**counts, repaired=repaired, checked=checked)


def _slices(
    store: Store, collection: Collection, tenant: str | None
) -> Iterator[tuple[int, int | None, list[Expected]]]:
    """Ranges of record numbers that leave no gap; the last is open, for points of no record."""
    after = 0
    while True:
        expected = store.expected(tenant, collection.version, after, _SLICE)
        if len(expected) < _SLICE:
            yield after, None, expected
            return
        yield after, expected[-1].record, expected
        after = expected[-1].record


def _compare(expected: list[Expected], held: list[Held]) -> _Findings:
    findings = _Findings()
    points: dict[int, list[Held]] = defaultdict(list)
    for point in held:
        points[point.record].append(point)
    for record in expected:
        there = points.pop(record.record, [])
        if record.busy:
            continue
        if not record.live:
            findings.orphans += there
            continue
        hashes = [point.hash for point in there if point.tenant == record.tenant]
        findings.orphans += [
            point
            for point in there
            if point.tenant != record.tenant or point.hash not in record.hashes
        ]
        if not record.hashes or record.hashes - set(hashes):
            findings.missing.add(record.record)
        elif not record.current or any(_is_behind(point, record) for point in there):
            findings.stale.add(record.record)
        if len(hashes) > len(set(hashes)):
            findings.doubled.add(record.record)
    for there in points.values():
        findings.orphans += there
    return findings


def _is_behind(point: Held, record: Expected) -> bool:
    """The text may be the same and the metadata older: an index put back from a backup."""
    return point.seq is not None and point.seq < record.seq


def _mend(store: Store, index: Index, collection: Collection, findings: _Findings) -> int:
    index.remove(collection.version, findings.orphans)
    rebuild = sorted(findings.missing | findings.stale | findings.doubled)
    if rebuild:
        store.reopen(collection.version, rebuild, forget=True)
    return len(findings.orphaned | set(rebuild))
