"""A sample of a tenant's vectors, whose cost does not grow with the number of records.

Up to the limit, all records of a kind are taken. Above it, short runs of records are read at places
that are spread evenly between the first and the last id. The same records give the same sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, takewhile, zip_longest
from typing import TYPE_CHECKING

from evervec.indexes.base import Index
from evervec.model.deadlines import check
from evervec.stores.base import Store
from evervec.stores.values import Collection, SampledRecord

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_RUNS = 40
_ROUNDS = 8
_AT_ONCE = 250
_CHUNKS = 4
"""chunks for each record of the sample that are read, on average, at most"""
_FIRST, _LETTERS = 0x20, 0x60
"""the printable characters of ASCII, of which most ids are made"""
_DEPTH = 3


@dataclass(frozen=True, slots=True, eq=False)
class VectorSample:
    """Records of one kind, each with the mean of its chunks' vectors."""

    records: list[SampledRecord]
    vectors: list[NDArray[np.float32]]
    is_all: bool
    """these are all records of the kind that have vectors"""


def sample_vectors(
    store: Store, index: Index, tenant: str, collection: Collection, limit: int
) -> VectorSample:
    """At most `limit` records of a tenant with their vectors in one version. Records with very many
    chunks are left out."""
    import numpy as np

    found, is_all = _records(store, tenant, collection, limit)
    chosen, chunks = [], 0
    for record in found:
        if record.chunks and chunks + record.chunks <= _CHUNKS * limit:
            chunks += record.chunks
            chosen.append(record)
        elif record.chunks:
            is_all = False
    records, vectors = [], []
    for start in range(0, len(chosen), _AT_ONCE):
        check()
        portion = chosen[start : start + _AT_ONCE]
        stored = index.vectors(collection.version, [each.record for each in portion])
        for record in portion:
            if points := stored.get(record.record):
                records.append(record)
                vectors.append(np.mean([point.vector for point in points], axis=0))
    return VectorSample(records, vectors, is_all)


def _records(
    store: Store, tenant: str, collection: Collection, limit: int
) -> tuple[list[SampledRecord], bool]:
    """Records, and whether these are all."""
    kind, version = collection.kind, collection.version
    found = store.records.sampled(tenant, kind, version, "", limit + 1)
    if len(found) <= limit:
        return found, True
    first, last = found[0].id, store.records.last_id(tenant, kind)
    length = max(1, limit // _RUNS)
    read = partial(store.records.sampled, tenant, kind, version)
    runs: list[list[SampledRecord]] = []
    for place in spread(first, last or first, min(_RUNS, limit)):
        check()
        # behind what was read: a run may reach beyond the next place
        after = max(place, runs[-1][-1].id) if runs else ""
        if run := read(after, length):
            runs.append(run)
    for _ in range(_ROUNDS):
        _extend(runs, read, length, limit)
    return sorted(chain.from_iterable(runs), key=lambda record: record.id)[:limit], False


def _extend(
    runs: list[list[SampledRecord]],
    read: Callable[[str, int], list[SampledRecord]],
    length: int,
    limit: int,
) -> None:
    """Read further at the end of each run, up to the next, until there are enough: ids are not
    spread evenly, so that some runs met the next one or the end."""
    missing = limit - sum(map(len, runs))
    for run, next_run in zip_longest(runs, runs[1:]):
        if missing <= 0:
            return
        check()
        more = read(run[-1].id, min(length, missing))
        run += [each for each in more if next_run is None or each.id < next_run[0].id]
        missing = limit - sum(map(len, runs))


def spread(first: str, last: str, count: int) -> Iterator[str]:
    """Texts that are spread evenly between two texts, by the first character in which they differ
    and those behind it."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, last, strict=False))
    common = "".join(letter for letter, _ in same)
    low = ord(first[len(common)]) if len(first) > len(common) else _FIRST
    high = ord(last[len(common)]) if len(last) > len(common) else low
    for number in range(count):
        place = low + (high + 1 - low) * number / count
        letters = [_letter(int(place))]
        for _ in range(_DEPTH):
            place = (place - int(place)) * _LETTERS
            letters.append(chr(_FIRST + int(place)))
        yield common + "".join(letters)


def _letter(code: int) -> str:
    return "\ud7ff" if 0xD800 <= code <= 0xDFFF else chr(code)
