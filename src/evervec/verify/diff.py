"""Compares one slice of records with their points in the index: what is wrong, and why.

The ledger lists the chunks that a record should have in the index, and from which change; whether
those are the chunks of its current text is checked against the text itself. If a point has a copy
of text and metadata, the copy is compared with the record. A damaged vector is detected; a wrong
vector of the same size and length is not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

from evervec.chunking import Cutter, embedded_text, hash_text
from evervec.indexes.base import Held
from evervec.model.records import Chunk
from evervec.stores.base import Records
from evervec.stores.values import Expected, Found

_CHARACTERS = 16_000_000
"""length of texts that are held at once, unless a single text is longer"""
Whose = tuple[str, int]
"""tenant and record: a point's tenant may differ from that of the record with its number"""


@dataclass(slots=True)
class Wrong:
    """The faults of one record, and how to repair them."""

    faults: set[str] = field(default_factory=set)
    spare: list[Held] = field(default_factory=list)
    """points to remove"""
    again: bool = False
    """write its points again"""
    forget: bool = False
    """and make its vectors again"""


class Content(NamedTuple):
    """What is known of a record's text and metadata."""

    embedded: bool | None = True
    """whether the ledger's chunks are those of the current text; None: cannot be determined"""
    metadata: Any = None
    pieces: Mapping[bytes, str] = {}
    """the text of each chunk, by hash, to compare with a point's copy"""


_WITHOUT_COPY = {known: Content(known) for known in (True, False, None)}


def contents_of(
    records: Records,
    expected: Iterable[Expected],
    held: Sequence[Held],
    cutter: Callable[[], Cutter | None],
    *,
    quick: bool,
) -> dict[int, Content]:
    """The contents of the records that can be read, by number. `quick` reads no text unless the
    index has copies of it. Few texts are held at once, however long they are."""
    copied = any(point.copy for point in held)
    if quick and not copied:
        return {}
    contents = {}
    for some in _by_length(record for record in expected if record.live):
        for number, found in records.found(list(some)).items():
            record = some[number]
            chunks = record.chunks if record.current else ()
            known = quick or not chunks or _is_embedded(found, chunks, cutter)
            contents[number] = (
                Content(
                    known,
                    _comparable(json.loads(found.metadata)),
                    {c.hash: found.text[c.start : c.end] for c in chunks},
                )
                if copied
                else _WITHOUT_COPY[known]
            )
    return contents


def _by_length(records: Iterable[Expected]) -> Iterator[dict[int, Expected]]:
    """Groups of records whose texts may be held together, by their length in the ledger."""
    part: dict[int, Expected] = {}
    characters = 0
    for record in records:
        size = record.chunks[-1].end if record.chunks else 0
        if part and characters + size > _CHARACTERS:
            yield part
            part, characters = {}, 0
        part[record.record] = record
        characters += size
    if part:
        yield part


def _is_embedded(
    found: Found, chunks: Sequence[Chunk], cutter: Callable[[], Cutter | None]
) -> bool | None:
    """Whether these are the chunks of a text: each is where the ledger says, and together they
    leave nothing out. If they do leave something out, the chunker has to cut the text again. If a
    title's hash differs, the model's window may have cut the title: the hash is computed again with
    that window."""
    title, text = found.title, found.text
    upto, whole = 0, True
    for chunk in sorted(chunks, key=attrgetter("start")):
        if hash_text(embedded_text(title, text, chunk.start, chunk.end)) != chunk.hash:
            known = cutter() if title else None
            if title and known is None:
                return None
            if known is None or known.hash_at(title, text, chunk.start, chunk.end) != chunk.hash:
                return False
        whole = whole and not text[upto : chunk.start].strip()
        upto = max(upto, chunk.end)
    if whole and not text[upto:].strip():
        return True
    made = cutter()
    if made is None:
        return None
    try:
        cut = made.cut(title, text)[0]
    except Exception:  # noqa: BLE001 - a kind's own chunker may raise anything
        return None
    return {chunk.hash for chunk in cut} == {chunk.hash for chunk in chunks}


def _comparable(value: Any) -> Any:
    """JSON normalised across engines: numbers compare by value, whole or not."""
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
        content = contents.get(record.record)
        if not record.busy and not _is_right(record, there, content):
            found = _examine(record, there, content)
            if found.faults:
                wrong[whose] = found
    for whose, there in points.items():
        wrong[whose] = Wrong({"orphaned"}, there)
    return wrong


def _is_right(record: Expected, there: list[Held], content: Content | None) -> bool:
    """Whether a record of one chunk is certainly right, as nearly all are: a shortcut for the full
    examination, which would find nothing."""
    settled = record.live and record.current and not record.doubtful
    if not settled or len(there) != 1 or len(record.chunks) != 1:
        return False
    point = there[0]
    return (
        point.sound
        and point.copy is None
        and point.seq == record.seq
        and point.hash == record.chunks[0].hash
        and (content is None or content.embedded is not False)
    )


def _examine(record: Expected, there: list[Held], content: Content | None) -> Wrong:
    """The faults of a settled record, given all points of its tenant with its number."""
    if not record.live:
        return Wrong({"orphaned"}, there) if there else Wrong()
    if not record.hashes:  # the ledger does not say which chunks its points are of
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
    if not record.current or (content is not None and content.embedded is False):
        wrong.faults.add("stale")
        wrong.again = True
    if record.doubtful:  # in doubt: whatever the points look like, the last write was not confirmed
        wrong.faults.add("stale")
        wrong.again = wrong.forget = True
    if "missing" in wrong.faults:
        wrong.faults.discard("stale")
    return wrong


def _examine_chunk(
    record: Expected, same: list[Held], content: Content | None, wrong: Wrong
) -> None:
    """Check the points of one chunk; there should be exactly one."""
    if not same:
        wrong.faults.add("missing")
        wrong.again = wrong.forget = True
        return
    # keep the best of them
    best = min(same, key=lambda point: (not _is_true(point, content), point.seq != record.seq))
    spare = [point for point in same if point is not best]
    if spare:
        wrong.faults.add("doubled")
        wrong.spare += spare
        # same key: the index cannot remove just one
        if any(point.key == best.key for point in spare):
            wrong.again = wrong.forget = True
    if not _is_true(best, content) or best.seq != record.seq:
        wrong.faults.add("stale")
        wrong.again = True
    if not best.sound or not _has_text(best, content):
        wrong.forget = True
    if best.seq > record.seq:  # a write with a lower number could not replace it
        wrong.spare.append(best)
        wrong.forget = True


def _is_true(point: Held, content: Content | None) -> bool:
    """Whether the point's vector, text and metadata are right, as far as can be determined."""
    if point.copy is None or content is None:
        return point.sound
    same = _comparable(point.copy.metadata) == content.metadata
    return point.sound and same and _has_text(point, content)


def _has_text(point: Held, content: Content | None) -> bool:
    """Whether the point's text contains the chunk's text, which may follow a title or headings."""
    if point.copy is None or content is None:
        return True
    return content.pieces.get(point.hash, "") in point.copy.text
