"""Divides a block that is too large for one chunk.

It is divided at lines, then sentences, clauses, words and punctuation; at each step only the parts
that are still too large. If a text has none of these, it is cut between characters chosen by a hash
of those around them, so that these places too depend on the text and not on position.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from evervec.chunking.base import Counting, together
from evervec.chunking.characters import parts_character
from evervec.chunking.structure import Block, indent_of

LINE = 40
"""rank of the start of a line as a place to cut; its indent is added"""
_CROWDED = 14  # added if no blank line precedes
_WORD_LEVEL, _RUN, _HALF = 74, 78, 80
_TINY = 16  # characters
_REACH = 16

_SENTENCE = r"[.!?…]['\")\]»”’]{0,3}\s+|[。！？][」』”’）]{0,3}\s*"  # noqa: RUF001
_LINE_OR_SENTENCE = re.compile(rf"\n\s*|{_SENTENCE}")
_WORD = re.compile(r"\s+")
_LONGEST_UNIT = 16  # characters of a token, roughly

_LINE = re.compile(r"[^\n]+")
_SENTENCE_END = re.compile(_SENTENCE)
_CLAUSE_END = re.compile(r"[;:,]\s+|[、，；：]\s*")  # noqa: RUF001
_MARKS = re.compile(r"[^\w\s]+")
_ANY_SENTENCE, _ANY_CLAUSE = re.compile("[.!?…。！？]"), re.compile("[;:,、，；：]")  # noqa: RUF001
_SPACE = 0x20
_WIDER_SPACES = np.array(
    [0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000], np.uint32
)
_LETTERS = 6
_MIX = tuple(map(np.uint32, (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35, 0x2C1B3C6D)))
_HALF_BITS = np.uint32(15)

Count = Callable[[str], int]
Place = tuple[int, int]
"""where a part starts, and its rank as a place to cut"""


def measured(text: str, parts: list[Block], most: int, way: int = 0) -> Counting[list[Block]]:
    """The parts with their sizes; those larger than `most` are divided, from the given way on, into
    parts that are not; as few as possible."""
    sizes = yield [text[part.start : part.end] for part in parts]
    for part, size in zip(parts, sizes, strict=True):
        part.size = size
    if all(part.size <= most for part in parts):
        return parts
    large = [part for part in parts if part.size > most]
    divided = iter((yield from together([_divided(text, part, most, way) for part in large])))
    return [piece for part in parts for piece in ([part] if part.size <= most else next(divided))]


def late_start(text: str, start: int, end: int, most: int, count: Count) -> int:
    """The first start of a line or sentence, otherwise of a word, from which the rest is at most
    `most`; `end` if there is none."""
    start = max(start, end - _LONGEST_UNIT * most)
    for begins in (_LINE_OR_SENTENCE, _WORD):
        places = [
            match.end()
            for match in begins.finditer(text, start, end)
            if not parts_character(text, match.end())
        ]
        place = bisect_left(places, True, key=lambda at: count(text[at:end]) <= most)
        if place < len(places) and places[place] < end:
            return places[place]
    return end


def _divided(text: str, block: Block, most: int, way: int) -> Counting[list[Block]]:
    """The parts of a block that is too large, by the first way that finds places in it."""
    for next_way in range(way, len(_SPLITTERS)):
        if places := _SPLITTERS[next_way](text, block.start, block.end):
            parts = _parts(text, block, places, min(_TINY, most // 16))
            return (yield from measured(text, parts, most, next_way + 1))
    return (yield from _halved(text, block, most))


def _parts(text: str, block: Block, places: list[Place], tiny: int) -> list[Block]:
    """The parts between places, without the space at their ends. The first part has the rank of the
    block itself. Tiny parts are merged into the next."""
    start, level = block.start, block.level
    found = []
    for place, next_level in places:
        if place - start < tiny and next_level >= level:
            continue
        if not start < place < block.end or parts_character(text, place):
            continue
        end = start + len(text[start:place].rstrip())
        if end > start:
            found.append(Block(start, end, level, block.context))
        start, level = place, next_level
    found.append(Block(start, block.end, level, block.context))
    return found


def _lines(text: str, start: int, end: int) -> list[Place]:
    last, found = start, []
    for match in _LINE.finditer(text, start, end):
        line = match.group()
        if line.isspace():
            continue
        crowded = text.count("\n", last, match.start()) < 2
        last = match.end()
        place = match.start() + len(line) - len(line.lstrip())
        found.append((place, LINE + indent_of(line) + (_CROWDED if crowded else 0)))
    return found


def _ends(
    level: int, end_of: re.Pattern[str], any_of: re.Pattern[str] | None = None
) -> Callable[[str, int, int], list[Place]]:
    """A function that finds the places after each match. `any_of` is a fast check for none: it
    halves the time for a long text without such marks."""

    def places(text: str, start: int, end: int) -> list[Place]:
        if any_of is not None and any_of.search(text, start, end) is None:
            return []
        return [(match.end(), level) for match in end_of.finditer(text, start, end)]

    return places


def _words(text: str, start: int, end: int) -> list[Place]:
    """Starts of words whose first letters have the lowest hash among their neighbours."""
    codes = _codes(text, start, end)
    space = codes <= _SPACE
    if not text.isascii():
        space |= np.isin(codes, _WIDER_SPACES)
    begins = np.flatnonzero(space[:-1] > space[1:]) + 1
    begins = begins[: np.searchsorted(begins, len(codes) - _LETTERS)]
    hashes = codes[begins]
    for letter in range(1, _LETTERS):
        hashes = hashes * _MIX[0] ^ codes[begins + letter]
    return [(start + place, _WORD_LEVEL) for place in begins[_least_around(hashes)].tolist()]


def _runs(text: str, start: int, end: int) -> list[Place]:
    """Places where the hash of the three characters before is the lowest in the neighbourhood."""
    codes = _codes(text, start, end)
    hashes = codes * _MIX[0]
    hashes[1:] ^= codes[:-1] * _MIX[1]
    hashes[2:] ^= codes[:-2] * _MIX[2]
    return [(start + place + 1, _RUN) for place in _least_around(hashes).tolist()]


def _codes(text: str, start: int, end: int) -> NDArray[np.uint32]:
    return np.frombuffer(text[start:end].encode("utf-32-le", "surrogatepass"), np.uint32)


def _least_around(hashes: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Positions whose hash is lower than all within `_REACH` on both sides."""
    if len(hashes) <= 2 * _REACH:
        return np.empty(0, np.intp)
    hashes = (hashes ^ (hashes >> _HALF_BITS)) * _MIX[3]
    least, width = hashes, 1
    while width < _REACH:  # doubles the window each time
        least = np.minimum(least[:-width], least[width:])
        width *= 2
    middle = hashes[_REACH:-_REACH]
    chosen = (middle < least[: len(middle)]) & (middle < least[_REACH + 1 :])
    return np.flatnonzero(chosen) + _REACH


def _halved(text: str, part: Block, most: int) -> Counting[list[Block]]:
    """Halve the rest, where nothing distinguishes one place from another."""
    middle = _middle(text, part.start, part.end) if part.size > most else None
    if middle is None:
        return [part]
    halves = [
        Block(part.start, middle, part.level, part.context),
        Block(middle, part.end, _HALF, part.context),
    ]
    return (yield from measured(text, halves, most, len(_SPLITTERS)))


def _middle(text: str, start: int, end: int) -> int | None:
    """A place near the middle that does not split a character; None if there is none. A sequence of
    marks longer than any character is cut anyway."""
    middle = (start + end) // 2
    for away in range(min(2 * _REACH, middle - start)):
        for place in (middle - away, middle + away):
            if start < place < end and not parts_character(text, place):
                return place
    return middle if end - start > 4 * _REACH else None


_SPLITTERS = (
    _lines,
    _ends(70, _SENTENCE_END, _ANY_SENTENCE),
    _ends(72, _CLAUSE_END, _ANY_CLAUSE),
    _words,
    _ends(_WORD_LEVEL + 1, _WORD),
    _ends(76, _MARKS),
    _runs,
)
