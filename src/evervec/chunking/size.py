"""Chunks by size, cut at natural boundaries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evervec.chunking.base import Span
from evervec.chunking.characters import whole
from evervec.errors import InvalidArgument

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
    """Pieces of at most `size` characters, cut at paragraphs, otherwise lines, sentences or
    words."""

    def __init__(self, size: int = 1000) -> None:
        if size < 16:
            raise InvalidArgument(f"a chunk must have at least 16 characters, not {size}")
        self.size = size
        self.spec = f"size:{size}"
        self.whole = size

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
        return whole(text, limit, least)


def _trimmed(text: str, start: int, stop: int) -> Span | None:
    piece = text[start:stop]
    left = len(piece) - len(piece.lstrip())
    if left == len(piece):
        return None
    return start + left, start + len(piece.rstrip())
