"""Cutting a text into chunks, and knowing a chunk again.

A chunk is known by the hash of what is embedded for it (the record's title and
the piece of text), not by its place, so a piece that only moved is not embedded
again. Chunkers are named by short specifications such as `size:1000`, so that a
worker in another process cuts the same way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Protocol

from evervec.model import Chunk

Span = tuple[int, int]


class Chunker(Protocol):
    """Cuts a text into pieces, given as spans of it in order."""

    spec: str
    """a name that says exactly how it cuts; `size:N` is known to every process"""

    def split(self, text: str) -> Iterable[Span]: ...


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
