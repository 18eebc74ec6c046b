"""Verify: does the index hold exactly the latest version of every record, once?

Store and index are walked side by side in order of record number, a slice at a time. Records with
an unfinished job are left out, so verify can run beside workers. A fault is reported only if the
store's answer for the record is the same before and after the index is read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from evervec.chunking import Cutter
from evervec.errors import InvalidArgument
from evervec.indexes.base import Index
from evervec.indexes.location import check_generation
from evervec.model.findings import FAULTS, QUICK, Findings, VerifyReport
from evervec.model.jobs import Status
from evervec.stores.base import Store
from evervec.stores.slices import expected_slices
from evervec.stores.values import Collection, Expected
from evervec.tables.comparison import compare_tables
from evervec.tables.tables import Tables
from evervec.verify.diff import Whose, Wrong, compare, contents_of

_SLICE = 2000
_CHUNKS = 10_000
"""most chunks in a slice, unless a single record has more"""
_LOOKS = 5

CutterOf = Callable[[Collection], Cutter | None]
"""how this process chunks the texts of a collection; None if it does not have that code"""


class _Slice(NamedTuple):
    """Records in order of their numbers, up to and including `upto`; None: no more follow."""

    after: int
    upto: int | None
    expected: list[Expected]


class _Seen(NamedTuple):
    """The result of reading a slice."""

    wrong: dict[Whose, Wrong]
    unsettled: set[int]
    """a job is unfinished, or the record changed every time it was read"""
    unread: set[int]
    """whether their vectors match their texts cannot be determined"""


def verify(
    store: Store,
    index: Index,
    tables: Tables,
    cutter_of: CutterOf,
    tenant: str | None,
    *,
    repair: bool,
    quick: bool,
    kind: str | None,
    faults: Iterable[str] | None,
    progress: Callable[[int], object],
) -> VerifyReport:
    """Compare tables, records and index, of one tenant or (None) of all, and of one kind or (None)
    of all. `repair` fixes only what is wrong: it removes surplus points and enqueues the other
    records. `faults`: it repairs only records with one of these. `quick` trusts the ledger without
    reading the texts. `progress` is called with the number of records checked. Raises `IndexMismatch`
    when the store has another index by now."""
    check_generation(store, index)
    chosen = _chosen(faults)
    walk = _Walk(store, index, cutter_of, tenant, progress, repair, quick, kind, chosen)
    compare_tables(tables, tenant, walk.findings, repair=repair, kind=kind, faults=chosen)
    walk.strays()
    return walk.collections()


def _chosen(faults: Iterable[str] | None) -> frozenset[str] | None:
    if faults is None:
        return None
    given = frozenset([faults] if isinstance(faults, str) else faults)
    if not given or not given.issubset(FAULTS):
        raise InvalidArgument(f"faults: must be some of {', '.join(FAULTS)}")
    return given


def verify_versions(
    store: Store,
    index: Index,
    cutter_of: CutterOf,
    versions: Container[int],
    *,
    repair: bool = False,
) -> VerifyReport:
    """Compare the index with the records for some versions only, of all tenants."""
    return _Walk(store, index, cutter_of, repair=repair).collections(versions)


def _used(collections: Iterable[Collection]) -> list[Collection]:
    return [c for c in collections if c.state != "retired"]


@dataclass(slots=True)
class _Walk:
    """One pass over store and index; `findings` collects the results."""

    store: Store
    index: Index
    cutter_of: CutterOf
    tenant: str | None = None
    progress: Callable[[int], object] = lambda _: None
    repair: bool = False
    quick: bool = False
    kind: str | None = None
    faults: frozenset[str] | None = None
    """repair only records with one of these; None: all"""
    findings: Findings = field(default_factory=Findings)

    def collections(self, versions: Container[int] | None = None) -> VerifyReport:
        """Walk all versions that are in use, or only these; returns the report."""
        for collection in _used(self.store.versions.collections()):
            if self.kind not in (None, collection.kind):
                continue
            if versions is None or collection.version in versions:
                self._collection(collection)
        return self.findings.report()

    def _collection(self, collection: Collection) -> None:
        unread = 0
        for part in _slices(self.store, collection, self.tenant):
            seen = self._look(collection, part)
            self._count(collection, part, seen)
            unread += len(seen.unread)
            if self.repair and (wrong := self._to_repair(seen.wrong)):
                _repair(self.store, self.index, collection, wrong)
                self.findings.repaired += len(wrong)
            self.progress(sum(record.live for record in part.expected))
        if unread:
            self.findings.unchecked.append(
                f"{collection.kind}: {unread} records were not compared with their texts, because "
                "this process lacks their chunker: run verify in the program that registers the "
                "kind, or with --app"
            )
        if self.quick and QUICK not in self.findings.unchecked:
            self.findings.unchecked.append(QUICK)

    def _to_repair(self, wrong: dict[Whose, Wrong]) -> dict[Whose, Wrong]:
        """A record is repaired as a whole: one that has a chosen fault loses its others too."""
        if self.faults is None:
            return wrong
        return {whose: found for whose, found in wrong.items() if found.faults & self.faults}

    def _count(self, collection: Collection, part: _Slice, seen: _Seen) -> None:
        counts, kind = self.findings.counts, collection.kind
        for (owner, _), found in seen.wrong.items():
            counts.update((owner, kind, fault) for fault in found.faults)
        by_state = {
            "waiting": [r for r in part.expected if r.record in seen.unsettled],
            "checked": [r for r in part.expected if r.live and r.record not in seen.unsettled],
            "failed": [r for r in part.expected if r.job is Status.FAILED],
        }
        for state, records in by_state.items():
            for owner, count in Counter(record.tenant for record in records).items():
                counts[owner, kind, state] += count

    def strays(self) -> None:
        """Count, and with repair remove, points of versions that are not in use. The kind of a
        version that the store does not know is empty."""
        store, index, tenant = self.store, self.index, self.tenant
        collections = store.versions.collections()
        found = index.strays({c.version for c in _used(collections)}, tenant)
        if found:  # read again: a version may just have been created or dropped
            seen = {(stray.version, stray.tenant) for stray in found}
            collections = store.versions.collections()
            found = [
                stray
                for stray in index.strays({c.version for c in _used(collections)}, tenant)
                if (stray.version, stray.tenant) in seen
            ]
        kinds: dict[int | None, str] = {c.version: c.kind for c in collections}
        found = [s for s in found if self.kind in (None, kinds.get(s.version, ""))]
        for stray in found:
            kind = kinds.get(stray.version, "")
            self.findings.counts[stray.tenant, kind, "misplaced"] += stray.records
        if found and self.repair and (self.faults is None or "misplaced" in self.faults):
            index.drop_strays(found)
            self.findings.repaired += sum(stray.records for stray in found)

    def _look(self, collection: Collection, part: _Slice) -> _Seen:
        """The faults in a slice, confirmed by reading again."""
        store, version = self.store, collection.version
        before = {record.record: record for record in part.expected}
        result = _Seen({}, {r.record for r in part.expected if r.busy}, set())
        suspects: set[Whose] | None = None  # the first pass looks at everything
        for _ in range(_LOOKS):
            held = self.index.held(version, self.tenant, part.after, part.upto)
            whose = before.keys() if suspects is None else {record for _, record in suspects}
            contents = contents_of(
                store.records,
                (r for number, r in before.items() if number in whose and not r.busy),
                held, lambda: self.cutter_of(collection), quick=self.quick,
            )  # fmt: skip
            seen = compare(before.values(), held, contents)
            if suspects is None:
                result.unread.update(n for n, c in contents.items() if c.embedded is None)
                suspects = set(seen)
                if not suspects:
                    break
                continue
            # if the store gives the same answer before and after this read of the index, the answer
            # held while the index was read
            now = _reread(store, version, self.tenant, part)
            certain = {whose for whose in suspects if before.get(whose[1]) == now.get(whose[1])}
            result.wrong.update((whose, seen[whose]) for whose in certain if whose in seen)
            result.unsettled.update(n for _, n in certain if n in now and now[n].busy)
            suspects -= certain
            before = now
            if not suspects:
                break
        result.unsettled.update(number for _, number in suspects or ())
        return result


def _slices(store: Store, collection: Collection, tenant: str | None) -> Iterator[_Slice]:
    """Contiguous ranges of record numbers; the last is open-ended, to include points without a
    record."""
    after = 0
    while True:
        expected = store.records.expected(tenant, collection.version, after, _SLICE)
        whole = _bounded(expected)
        if len(whole) == len(expected) < _SLICE:
            yield _Slice(after, None, expected)
            return
        upto = whole[-1].record
        yield _Slice(after, upto, whole)
        after = upto


def _bounded(expected: list[Expected]) -> list[Expected]:
    """The first records, limited so that large ones do not fill the memory."""
    chunks = 0
    for place, record in enumerate(expected):
        chunks += len(record.chunks)
        if chunks > _CHUNKS and place:
            return expected[:place]
    return expected


def _reread(store: Store, version: int, tenant: str | None, part: _Slice) -> dict[int, Expected]:
    """The records of a slice as they are now, including new ones."""
    now: dict[int, Expected] = {}
    for found in expected_slices(store, version, _SLICE, part.after, tenant):
        now |= {r.record: r for r in found if part.upto is None or r.record <= part.upto}
        if part.upto is not None and found[-1].record >= part.upto:
            break
    return now


def _repair(
    store: Store, index: Index, collection: Collection, wrong: Mapping[Whose, Wrong]
) -> None:
    version = collection.version
    index.remove(version, [point for found in wrong.values() for point in found.spare])
    again = {record: found.forget for (_, record), found in wrong.items() if found.again}
    for forget in (False, True):
        if records := sorted(r for r, forgets in again.items() if forgets is forget):
            index.revive(version, records)
            store.changes.reopen(version, records, forget=forget)
