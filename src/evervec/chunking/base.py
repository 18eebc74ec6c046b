"""Cutting a text into chunks, and knowing a chunk again.

A chunk is known by the hash of the record's title and of the piece of text, not by its
place, so a piece that only moved is not embedded again. What else a chunker tells of a
piece's place, such as the headings above it, is embedded with it as context but is not
part of the hash: a change far above does not embed it again. Chunkers are named by short
specifications such as `size:1000`, so that a worker in another process cuts the same way.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol

from evervec.model import Chunk

Span = tuple[int, int]


class Piece(NamedTuple):
    """A span of a text, with the words that say where in the text it stands."""

    start: int
    end: int
    context: str = ""


class Chunker(Protocol):
    """Cuts a text into pieces, given in order as spans of it, with or without context."""

    spec: str
    """a name that says exactly how it cuts; `size:…` and `content:…` are known to every process"""

    def split(self, text: str) -> Iterable[Span | Piece]: ...


def embedded_text(title: str | None, text: str, start: int, end: int, context: str = "") -> str:
    """What is embedded for a piece: below the record's title and the piece's own context."""
    return "\n\n".join(part for part in (title, context, text[start:end]) if part)


def hash_text(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def chunk(chunker: Chunker, title: str | None, text: str) -> tuple[list[Chunk], list[str]]:
    """The chunks of a text and what is embedded for each, in order."""
    chunks, texts = [], []
    for start, end, *context in chunker.split(text):
        known = embedded_text(title, text, start, end)
        chunks.append(Chunk(hash_text(known), start, end))
        texts.append(embedded_text(title, text, start, end, *context) if any(context) else known)
    return chunks, texts
