"""Chunks by size, cut at natural boundaries."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from evervec.chunking.base import Span
from evervec.errors import InvalidArgument

_JOINER = "\u200d"

# where a text may be cut, best first; each pattern ends right behind the cut
_BOUNDARIES = tuple(
    re.compile(pattern)
    for pattern in (
        r"\n\s*\n",
        r"\n",
        r"[.!?。！？…]['\")\]»”]*\s+|[。！？]",  # noqa: RUF001
        r"[;:,、，]\s*",  # noqa: RUF001
        r"\s+",
    )
)


class SizeChunker:
    """Pieces of at most `size` characters, cut at paragraphs, else lines, sentences, words."""

    def __init__(self, size: int = 1000) -> None:
        if size < 16:
            raise InvalidArgument(f"a chunk must have at least 16 characters, not {size}")
        self.size = size
        self.spec = f"size:{size}"

    def split(self, text: str) -> Iterator[Span]:
        start, end = 0, len(text)
        while start < end:
            stop = end if end - start <= self.size else self._cut(text, start)
            piece = _trimmed(text, start, stop)
            if piece is not None:
                yield piece
            start = stop

    def _cut(self, text: str, start: int) -> int:
        """The last good boundary in the second half of a piece, or its full size."""
        limit, least = start + self.size, start + self.size // 2
        for boundary in _BOUNDARIES:
            cut = 0
            for match in boundary.finditer(text, least, limit):
                cut = match.end()
            if cut > least:
                return cut
        return _whole_characters(text, limit)


def _trimmed(text: str, start: int, stop: int) -> Span | None:
    piece = text[start:stop]
    left = len(piece) - len(piece.lstrip())
    if left == len(piece):
        return None
    return start + left, start + len(piece.rstrip())


def _whole_characters(text: str, cut: int) -> int:
    """Do not part a letter from its accents, nor an emoji from what joins it."""
    for back in range(8):
        at = cut - back
        if not _joins(text[at]) and not _joins(text[at - 1], before=True):
            return at
    return cut


def _joins(char: str, *, before: bool = False) -> bool:
    if before:
        return char == _JOINER
    return (
        char == _JOINER
        or unicodedata.combining(char) != 0
        or "\ufe00" <= char <= "\ufe0f"
        or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
