"""Splits texts into chunks.

`base` defines what a chunk is and measures it; `content` cuts where the content suggests it (`structure`
finds the blocks, `division` divides large ones), `size` at a size. The folder works on texts alone.
`evervec.worker.pipeline` chunks records, and `evervec.verify` checks their chunks.
"""

from __future__ import annotations

from evervec.chunking.base import (
    BYTES,
    Chunker,
    Cutter,
    Measure,
    Piece,
    Span,
    Window,
    chunk,
    chunk_all,
    embedded_text,
    hash_text,
)
from evervec.chunking.content import ContentChunker
from evervec.chunking.size import SizeChunker

__all__ = [
    "BYTES",
    "Chunker",
    "ContentChunker",
    "Cutter",
    "Measure",
    "Piece",
    "SizeChunker",
    "Span",
    "Window",
    "chunk",
    "chunk_all",
    "embedded_text",
    "hash_text",
    "parse_chunker",
]


def parse_chunker(spec: str, default: Chunker) -> Chunker | None:
    """The chunker that a specification names, with the default's measure if it names a measure;
    None if only code can create it."""
    if not spec or spec == default.spec:
        return default
    kind, _, size = spec.partition(":")
    if kind == "size" and size.isdecimal():
        return SizeChunker(int(size))
    return ContentChunker.parse(spec, getattr(default, "measure", BYTES))
