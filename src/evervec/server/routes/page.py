"""A page of records, bounded by its text."""

from __future__ import annotations

from collections.abc import Callable

from pydantic_core import to_json

from evervec.model.records import Record

_PORTION = 16
"""records that are read at once, each of which may be as long as a body"""


def bounded_page(
    listed: Callable[..., list[Record]], after: tuple[str, str] | None, limit: int, most: int
) -> tuple[list[Record], bool]:
    """Records up to a limit, or until they exceed `most` characters, and whether there may be more.
    They are read in portions, to bound the memory."""
    found: list[Record] = []
    size = 0
    while True:
        wanted = min(_PORTION, limit - len(found))
        part = listed(after=found[-1] if found else after, limit=wanted)
        for place, record in enumerate(part, 1):
            size += _size(record)
            if size > most:
                return found + part[:place], place < len(part) or len(part) == wanted
        found += part
        if len(part) < wanted or len(found) == limit:
            return found, len(part) == wanted


def _size(record: Record) -> int:
    """About how many characters a record has."""
    size = len(record.text) + len(record.title or "")
    if record.metadata:
        size += len(to_json(record.metadata))
    return size if record.data is None else size + len(to_json(record.data))
