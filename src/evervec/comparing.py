"""One slice of records beside the points that an index holds of them: what is wrong, and why.

The ledger says which chunks a record should have there, and of which change. A point that
keeps a copy of text and metadata is compared with the record itself. Of a vector it can be
told that it is damaged, not that it is another one of the same size and length.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from evervec.indexes.base import Held
from evervec.stores.base import Store
from evervec.stores.ledger import unpack_chunks
from evervec.stores.values import Expected

Whose = tuple[str, int]
"""tenant and record: a point may bear another tenant than the record of its number"""


@dataclass(slots=True)
class Wrong:
    """What is not as it should be of one record, and what mends it."""

    faults: set[str] = field(default_factory=set)
    spare: list[Held] = field(default_factory=list)
    """points to take out"""
    again: bool = False
    """its points are to be written again"""
    forget: bool = False
    """and its vectors made anew"""


class Content(NamedTuple):
    """What points may repeat of a record."""

    metadata: Any
    pieces: dict[bytes, str]
    """the text of each chunk, by hash"""


def contents_of(
    store: Store, version: int, expected: Iterable[int], held: Sequence[Held]
) -> dict[int, Content]:
    """Of those records whose points can be compared with them; none where an index keeps nothing
    but vectors."""
    if not any(point.copy for point in held):
        return {}
    records = list(expected)
    ledgers = store.ledgers(records, [version])
    return {
        record: Content(
            _comparable(json.loads(found.metadata)),
            {c.hash: found.text[c.start : c.end] for c in unpack_chunks(ledgers.get(record))},
        )
        for record, found in store.found(records).items()
    }


def _comparable(value: Any) -> Any:
    """JSON as every engine gives it back: numbers by their size, whole or not."""
    if isinstance(value, Mapping):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value) if abs(value) < 1 << 1000 else str(value)
    return value


def compare(
    expected: Iterable[Expected], held: Sequence[Held], contents: Mapping[int, Content]
) -> dict[Whose, Wrong]:
    points: dict[Whose, list[Held]] = defaultdict(list)
    for point in held:
        points[point.tenant, point.record].append(point)
    wrong: dict[Whose, Wrong] = {}
    for record in expected:
        whose = (record.tenant, record.record)
        there = points.pop(whose, [])
        if not record.busy:
            found = _examine(record, there, contents.get(record.record))
            if found.faults:
                wrong[whose] = found
    for whose, there in points.items():
        wrong[whose] = Wrong({"orphaned"}, there)
    return wrong


def _examine(record: Expected, there: list[Held], content: Content | None) -> Wrong:
    """A settled record, and all points of its tenant that bear its number."""
    if not record.live:
        return Wrong({"orphaned"}, there) if there else Wrong()
    if not record.hashes:  # nobody knows what its points are of
        return Wrong({"stale" if there else "missing"}, again=True, forget=True)
    wrong = Wrong()
    by_hash: dict[bytes, list[Held]] = defaultdict(list)
    for point in there:
        by_hash[point.hash].append(point)
    for hash in record.hashes:
        _examine_chunk(record, by_hash.pop(hash, []), content, wrong)
    for unknown in by_hash.values():
        wrong.faults.add("orphaned")
        wrong.spare += unknown
    if not record.current:
        wrong.faults.add("stale")
        wrong.again = True
    if "missing" in wrong.faults:
        wrong.faults.discard("stale")
    return wrong


def _examine_chunk(
    record: Expected, same: list[Held], content: Content | None, wrong: Wrong
) -> None:
    """The points of one chunk, of which there should be one."""
    if not same:
        wrong.faults.add("missing")
        wrong.again = wrong.forget = True
        return
    # the best of them stays
    best = min(same, key=lambda point: (not _is_true(point, content), point.seq != record.seq))
    spare = [point for point in same if point is not best]
    if spare:
        wrong.faults.add("doubled")
        wrong.spare += spare
        if any(point.key == best.key for point in spare):  # the index cannot take out just one
            wrong.again = wrong.forget = True
    if not _is_true(best, content) or best.seq != record.seq:
        wrong.faults.add("stale")
        wrong.again = True
    if not best.sound or not _has_text(best, content):
        wrong.forget = True
    if best.seq > record.seq:  # nothing could be written over it
        wrong.spare.append(best)
        wrong.forget = True


def _is_true(point: Held, content: Content | None) -> bool:
    """Whether its vector, text and metadata are what they should be, as far as can be told."""
    if point.copy is None or content is None:
        return point.sound
    same = _comparable(point.copy.metadata) == content.metadata
    return point.sound and same and _has_text(point, content)


def _has_text(point: Held, content: Content | None) -> bool:
    """Whether its text has that of the chunk in it, below a title or headings."""
    if point.copy is None or content is None:
        return True
    return content.pieces.get(point.hash, "") in point.copy.text
