"""Verify: does the index hold exactly the latest version of every record, once?

Store and index are walked side by side in order of the records' numbers, a slice at a
time. What a job is about to settle is left out, so it can run beside workers; and what
looks wrong is reported only if the store says the same of it before and after another
look at the index.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import NamedTuple

from evervec.comparing import Whose, Wrong, compare, contents_of
from evervec.indexes.base import Index
from evervec.reports import FAULTS, Tally, VerifyReport
from evervec.stores.base import Store
from evervec.stores.values import Collection, Expected
from evervec.tables import Tables

_SLICE = 2000
_CHUNKS = 10_000
"""of a slice, unless one record alone has more"""
_LOOKS = 5


class _Slice(NamedTuple):
    """Records in order of their numbers, up to and with `upto`; None: there are no more."""

    after: int
    upto: int | None
    expected: list[Expected]


def verify(
    store: Store,
    index: Index,
    tables: Tables,
    tenant: str | None,
    *,
    repair: bool = False,
    progress: Callable[[int], object] = lambda _: None,
) -> VerifyReport:
    """Compare tables, records and index, of one tenant or (None) of all; `repair` mends just what
    is off: it takes out what is too much, and enqueues the rest. `progress` is called with the
    number of records looked at."""
    counts = tables.compare(store, tenant, repair=repair)
    counts += _strays(store, index, tenant, repair=repair)
    repaired = counts.total() if repair else 0
    for collection in _used(store.collections()):
        repaired += _walk(store, index, collection, tenant, counts, progress, repair=repair)
    return _report(counts, repaired)


def verify_versions(
    store: Store, index: Index, versions: Container[int], *, repair: bool = False
) -> VerifyReport:
    """Compare the index with the records for some versions alone, of all tenants."""
    counts: Counter[tuple[str, str, str]] = Counter()
    repaired = sum(
        _walk(store, index, collection, None, counts, lambda _: None, repair=repair)
        for collection in _used(store.collections())
        if collection.version in versions
    )
    return _report(counts, repaired)


def _used(collections: Iterable[Collection]) -> list[Collection]:
    return [c for c in collections if c.state != "retired"]


def _walk(
    store: Store,
    index: Index,
    collection: Collection,
    tenant: str | None,
    counts: Counter[tuple[str, str, str]],
    progress: Callable[[int], object],
    *,
    repair: bool,
) -> int:
    """Count what is wrong with one collection, and what is not; how much was repaired."""
    repaired = 0
    for part in _slices(store, collection, tenant):
        wrong = _look(store, index, collection, tenant, part)
        for (owner, _), found in wrong.items():
            counts.update((owner, collection.kind, fault) for fault in found.faults)
        live = Counter(record.tenant for record in part.expected if record.live)
        for owner, count in live.items():
            counts[owner, collection.kind, "checked"] += count
        if repair and wrong:
            _mend(store, index, collection, wrong)
            repaired += len(wrong)
        progress(live.total())
    return repaired


def _report(counts: Mapping[tuple[str, str, str], int], repaired: int) -> VerifyReport:
    by: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    for (owner, kind, name), count in sorted(counts.items()):
        by[owner, kind][name] = count
    tallies = tuple(Tally(owner, kind, **found) for (owner, kind), found in by.items())
    total = {name: sum(getattr(t, name) for t in tallies) for name in (*FAULTS, "checked")}
    return VerifyReport(**total, repaired=repaired, by=tallies)


def _strays(
    store: Store, index: Index, tenant: str | None, *, repair: bool
) -> Counter[tuple[str, str, str]]:
    """Points of versions that are not in use."""
    collections = store.collections()
    found = index.strays({c.version for c in _used(collections)}, tenant)
    if found:  # a version may just have come or gone
        seen = {(stray.version, stray.tenant) for stray in found}
        collections = store.collections()
        found = [
            stray
            for stray in index.strays({c.version for c in _used(collections)}, tenant)
            if (stray.version, stray.tenant) in seen
        ]
    if found and repair:
        index.drop_strays(found)
    kinds: dict[int | None, str] = {c.version: c.kind for c in collections}
    counts: Counter[tuple[str, str, str]] = Counter()
    for stray in found:
        counts[stray.tenant, kinds.get(stray.version, ""), "misplaced"] += stray.records
    return counts


# one collection
def _slices(store: Store, collection: Collection, tenant: str | None) -> Iterator[_Slice]:
    """Ranges of record numbers that leave no gap; the last is open, for points of no record."""
    after = 0
    while True:
        expected = store.expected(tenant, collection.version, after, _SLICE)
        whole = _bounded(expected)
        if len(whole) == len(expected) < _SLICE:
            yield _Slice(after, None, expected)
            return
        upto = whole[-1].record
        yield _Slice(after, upto, whole)
        after = upto


def _bounded(expected: list[Expected]) -> list[Expected]:
    """The first of them, so that large records do not fill the memory."""
    chunks = 0
    for place, record in enumerate(expected):
        chunks += len(record.hashes)
        if chunks > _CHUNKS and place:
            return expected[:place]
    return expected


def _look(
    store: Store, index: Index, collection: Collection, tenant: str | None, part: _Slice
) -> dict[Whose, Wrong]:
    """What is wrong in a slice, for certain."""
    version = collection.version
    before = {record.record: record for record in part.expected}
    wrong: dict[Whose, Wrong] = {}
    suspects: set[Whose] | None = None  # at first everything
    for _ in range(_LOOKS):
        held = index.held(version, tenant, part.after, part.upto)
        seen = compare(list(before.values()), held, contents_of(store, version, before, held))
        if suspects is None:
            suspects = set(seen)
            if not suspects:
                break
            continue
        # what the store said before this look and says after it, was so while it was made
        now = _reread(store, version, tenant, part)
        certain = {whose for whose in suspects if before.get(whose[1]) == now.get(whose[1])}
        wrong |= {whose: seen[whose] for whose in certain if whose in seen}
        suspects -= certain
        before = now
        if not suspects:
            break
    return wrong


def _reread(store: Store, version: int, tenant: str | None, part: _Slice) -> dict[int, Expected]:
    """The records of a slice as they are now, those that came since among them."""
    now: dict[int, Expected] = {}
    after = part.after
    while found := store.expected(tenant, version, after, _SLICE):
        after = found[-1].record
        now |= {r.record: r for r in found if part.upto is None or r.record <= part.upto}
        if part.upto is not None and after >= part.upto:
            break
    return now


def _mend(store: Store, index: Index, collection: Collection, wrong: Mapping[Whose, Wrong]) -> None:
    version = collection.version
    index.remove(version, [point for found in wrong.values() for point in found.spare])
    again = {record: found.forget for (_, record), found in wrong.items() if found.again}
    for forget in (False, True):
        if records := sorted(r for r, forgets in again.items() if forgets is forget):
            index.revive(version, records)
            store.reopen(version, records, forget=forget)
