"""One slice of records beside the points that an index holds of them: what is wrong, and why.

The ledger says which chunks a record should have there, and of which change; whether those
are the chunks of its present text is told from the text itself. A point that keeps a copy of
text and metadata is compared with the record. Of a vector it can be told that it is damaged,
not that it is another one of the same size and length.
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
from evervec.stores.base import Store
from evervec.stores.values import Expected, Found

_CHARACTERS = 16_000_000
"""of texts that are held at once, unless one alone has more"""
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
    """What is known of a record's text and metadata."""

    embedded: bool | None = True
    """whether the ledger's chunks are those of the present text; None: it cannot be told"""
    metadata: Any = None
    pieces: Mapping[bytes, str] = {}
    """the text of each chunk, by hash: what a point may repeat of it"""


_TOLD = {known: Content(known) for known in (True, False, None)}


def contents_of(
    store: Store,
    expected: Iterable[Expected],
    held: Sequence[Held],
    cutter: Callable[[], Cutter | None],
    *,
    quick: bool,
) -> dict[int, Content]:
    """By number, those of the records that can be read. `quick` reads no text unless the index
    has copies of it. Few texts are held at once, however long they are."""
    copied = any(point.copy for point in held)
    if quick and not copied:
        return {}
    contents = {}
    for some in _parted(record for record in expected if record.live):
        for number, found in store.found(list(some)).items():
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
                else _TOLD[known]
            )
    return contents


def _parted(records: Iterable[Expected]) -> Iterator[dict[int, Expected]]:
    """Records whose texts may be held together, by what the ledger says of their length."""
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
    """Whether these are the chunks of a text: each stands where the ledger says, and together
    they leave nothing out. A chunker that leaves something out has to be asked for its cuts,
    and a model whose window cuts titles for that window."""
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
        content = contents.get(record.record)
        if not record.busy and not _is_right(record, there, content):
            found = _examine(record, there, content)
            if found.faults:
                wrong[whose] = found
    for whose, there in points.items():
        wrong[whose] = Wrong({"orphaned"}, there)
    return wrong


def _is_right(record: Expected, there: list[Held], content: Content | None) -> bool:
    """Whether a record of one chunk is right beyond doubt, as nearly all are: a short way past
    the examination, which would find nothing."""
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
    if not record.current or (content is not None and content.embedded is False):
        wrong.faults.add("stale")
        wrong.again = True
    if record.doubtful:  # whatever the points look like, nobody knows what was written
        wrong.faults.add("stale")
        wrong.again = wrong.forget = True
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
