"""Cutting a text into chunks, and knowing a chunk again.

A chunk is known by the hash of what is embedded for it (the record's title and
the piece of text), not by its place, so a piece that only moved is not embedded
again. Chunkers are named by short specifications such as `size:1000`, so that a
worker in another process cuts the same way.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Protocol

from evervec.errors import InvalidArgument
from evervec.model import Chunk

Span = tuple[int, int]
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


class Chunker(Protocol):
    """Cuts a text into pieces, given as spans of it in order."""

    spec: str
    """a name that says exactly how it cuts; `size:N` is known to every process"""

    def split(self, text: str) -> Iterable[Span]: ...


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


def parse_chunker(spec: str, default: Chunker) -> Chunker | None:
    """The chunker that a specification names; None when only code can make it."""
    if not spec or spec == default.spec:
        return default
    kind, _, size = spec.partition(":")
    if kind == "size" and size.isdecimal():
        return SizeChunker(int(size))
    return None


def embedded_text(title: str | None, text: str, start: int, end: int) -> str:
    """What is embedded for a piece: the record's title gives it context."""
    piece = text[start:end]
    return f"{title}\n\n{piece}" if title else piece


def hash_text(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def chunk(chunker: Chunker, title: str | None, text: str) -> tuple[list[Chunk], list[str]]:
    """The chunks of a text and what is embedded for each, in order."""
    chunks, texts = [], []
    for start, end in chunker.split(text):
        content = embedded_text(title, text, start, end)
        chunks.append(Chunk(hash_text(content), start, end))
        texts.append(content)
    return chunks, texts


def chunk_text(chunks: Sequence[Chunk], wanted: bytes, title: str | None, text: str) -> str:
    """The piece of a record that a hash names; its beginning where the text moved on since."""
    for piece in chunks:
        if piece.hash == wanted:
            found = text[piece.start : piece.end]
            if hash_text(embedded_text(title, text, piece.start, piece.end)) == wanted:
                return found
    end = chunks[0].end if chunks else 1000
    return text[:end]


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
