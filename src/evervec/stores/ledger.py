"""A ledger entry: a record's chunks in the index, packed into one value.

Each chunk is 16 bytes of hash, then its start and end in the record's text.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from evervec.model.records import Chunk

_CHUNK = Struct("<16sII")


def pack_chunks(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(_CHUNK.pack(*chunk) for chunk in chunks)


def find_chunk(entry: bytes, wanted: bytes) -> tuple[int, int, int] | None:
    """Position, start and end of the chunk with a hash, without unpacking the others."""
    at = entry.find(wanted)
    while at >= 0 and at % 24:  # skip a match that is not at the start of a chunk
        at = entry.find(wanted, at + 1)
    if at < 0:
        return None
    _, start, end = _CHUNK.unpack_from(entry, at)
    return at // 24, start, end


def count_chunks(entry: bytes | None) -> int:
    return len(entry) // _CHUNK.size if entry else 0


def unpack_chunks(entry: bytes | None) -> tuple[Chunk, ...]:
    return tuple(map(Chunk._make, _CHUNK.iter_unpack(entry))) if entry else ()
