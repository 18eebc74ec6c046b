"""Cutting a text into chunks, and knowing a chunk again.

A chunk is known by the hash of the record's title and of the piece of text, not by its
place, so a piece that only moved is not embedded again. What else a chunker tells of a
piece's place, such as the headings above it, is embedded with it as context but is not
part of the hash: a change far above does not embed it again. Where a model takes only so
much, title and headings are cut, so that all of the piece is embedded. Chunkers are named
by short specifications such as `size:1000`, so that a worker in another process cuts the
same way.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol

from evervec.chunking.characters import whole
from evervec.model.records import Chunk

Span = tuple[int, int]


class Piece(NamedTuple):
    """A span of a text, with the words that say where in the text it stands."""

    start: int
    end: int
    context: str = ""


class Window(NamedTuple):
    """What a model looks at of a text; whatever is beyond is cut off."""

    most: int
    count: Callable[[str], int]
    """a text's size in characters, or in tokens; no character is more than one"""

    def holds(self, text: str) -> bool:
        return len(text) <= self.most or self.count(text) <= self.most


class Chunker(Protocol):
    """Cuts a text into pieces, given in order as spans of it, with or without context."""

    spec: str
    """a name that says exactly how it cuts; `size:…` and `content:…` are known to every process"""

    def split(self, text: str) -> Iterable[Span | Piece]: ...


def embedded_text(title: str | None, text: str, start: int, end: int, context: str = "") -> str:
    """What is embedded for a piece: below the record's title and the piece's own context."""
    piece = text[start:end]
    if not title and not context:
        return piece
    return "\n\n".join(part for part in (title, context, piece) if part)


def hash_text(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def chunk(
    chunker: Chunker, title: str | None, text: str, window: Window | None = None
) -> tuple[list[Chunk], list[str]]:
    """The chunks of a text and what is embedded for each, in order."""
    chunks, texts = [], []
    for start, end, *rest in chunker.split(text):
        head, context = title, rest[0] if rest else ""
        if window is not None and (head or context):
            head, context = _fitted(head or "", context, text[start:end], window)
        known = embedded_text(head, text, start, end)
        chunks.append(Chunk(hash_text(known), start, end))
        texts.append(embedded_text(head, text, start, end, context) if context else known)
    return chunks, texts


class Cutter(NamedTuple):
    """How the texts of a collection are cut for its model."""

    chunker: Chunker
    window: Window | None = None

    def cut(self, title: str | None, text: str) -> tuple[list[Chunk], list[str]]:
        return chunk(self.chunker, title, text, self.window)

    def hash_at(self, title: str | None, text: str, start: int, end: int) -> bytes:
        """The hash of the chunk that stands there."""
        head = title
        if self.window is not None and title:
            head, _ = _fitted(title, "", text[start:end], self.window)
        return hash_text(embedded_text(head, text, start, end))


def _fitted(title: str, context: str, piece: str, window: Window) -> tuple[str, str]:
    """As much of title and context as a window holds together with a piece: all of the title
    before any of the context. A piece that fills it by itself is left as it is."""

    def fits(*before: str) -> bool:
        return window.holds("\n\n".join(part for part in (*before, piece) if part))

    if fits(title, context) or not fits():
        return title, context
    title = _beginning(title, fits)
    return title, _beginning(context, lambda head: fits(title, head))


_WORD = re.compile(r"\S+")


def _beginning(text: str, fits: Callable[[str], bool]) -> str:
    """As much of a text as fits, ended at a word where there is one."""
    if fits(text):
        return text
    ends = [match.end() for match in _WORD.finditer(text)]
    words = bisect_left(ends, True, key=lambda end: not fits(text[:end]))
    if words:
        return text[: ends[words - 1]]
    length = bisect_left(range(len(text)), True, key=lambda end: not fits(text[: end + 1]))
    return text[: whole(text, length)] if length else ""
