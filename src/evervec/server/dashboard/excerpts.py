"""Parts of texts: a few lines around the marked words, and a chunk with what surrounds it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

_BEFORE = 60
"""characters shown before the first marked word"""


class Excerpt(NamedTuple):
    """A part of a text."""

    text: str
    places: list[tuple[int, int]]
    """of the marked words in it"""
    is_cut_before: bool
    is_cut_after: bool


class Surrounded(NamedTuple):
    """A chunk in its record's text."""

    before: str
    after: str
    is_cut_before: bool
    is_cut_after: bool


def excerpt(text: str, places: Sequence[tuple[int, int]], most: int) -> Excerpt:
    """At most so many characters, around the part with most of the marked words."""
    if len(text) <= most:
        return Excerpt(text, list(places), False, False)
    start = _best_start(places, most)
    start = max(0, min(start, len(text) - most))
    if start:
        gap = text.find(" ", start, start + _BEFORE)
        start = gap + 1 if gap >= 0 else start
    end = min(len(text), start + most)
    if end < len(text):
        gap = text.rfind(" ", end - _BEFORE, end)
        end = gap if gap > start else end
    inside = [(a - start, b - start) for a, b in places if a >= start and b <= end]
    return Excerpt(text[start:end], inside, start > 0, end < len(text))


def _best_start(places: Sequence[tuple[int, int]], most: int) -> int:
    """Where a window begins that has most of the marked words."""
    best, count, last = 0, 0, 0
    for first, (start, _) in enumerate(places):
        while last < len(places) and places[last][1] <= start + most - _BEFORE:
            last += 1
        if last - first > count:
            best, count = start - _BEFORE, last - first
    return best


def surrounded(text: str, start: int, end: int, most: int) -> Surrounded:
    """What is before and after a chunk."""
    before, after = max(0, start - most), min(len(text), end + most)
    return Surrounded(text[before:start], text[end:after], before > 0, after < len(text))


class Piece(NamedTuple):
    """A stretch of a text between two borders of chunks."""

    start: int
    end: int
    chunks: tuple[int, ...]
    """the chunks that it belongs to, from 0; several where chunks overlap, none between chunks"""


def pieces(length: int, chunks: Sequence[tuple[int, int]]) -> list[Piece]:
    """A text divided at all borders of its chunks. In order of their starts, chunks overlap only
    their neighbours, so that each piece is found in a few steps."""
    borders = {0, length}
    for start, end in chunks:
        borders |= {min(start, length), min(end, length)}
    found, open_chunks, following = [], list[int](), 0
    order = sorted(range(len(chunks)), key=lambda n: chunks[n])
    places = sorted(borders)
    for start, end in itertools.pairwise(places):
        while following < len(order) and chunks[order[following]][0] <= start:
            open_chunks.append(order[following])
            following += 1
        open_chunks = [n for n in open_chunks if chunks[n][1] > start]
        found.append(Piece(start, end, tuple(sorted(open_chunks))))
    return found
