"""A ledger entry: the chunks that an index holds of a record, packed into one value.

Each chunk is 16 bytes of hash, then its start and end in the record's text.
"""

from __future__ import annotations

from collections.abc import Sequence

from evervec.model import Chunk


def pack_chunks(chunks: Sequence[Chunk]) -> bytes:
    return b"".join(
        c.hash + c.start.to_bytes(4, "little") + c.end.to_bytes(4, "little") for c in chunks
    )


def find_chunk(entry: bytes, wanted: bytes) -> tuple[int, int] | None:
    """Start and end of the chunk with a hash, without unpacking the others."""
    at = entry.find(wanted)
    while at >= 0 and at % 24:  # a match across two fields is none
        at = entry.find(wanted, at + 1)
    if at < 0:
        return None
    number = int.from_bytes
    return number(entry[at + 16 : at + 20], "little"), number(entry[at + 20 : at + 24], "little")


def hashes_in(entry: bytes | None) -> frozenset[bytes]:
    """The hashes of its chunks alone."""
    return frozenset(entry[i : i + 16] for i in range(0, len(entry), 24)) if entry else frozenset()


def unpack_chunks(entry: bytes | None) -> tuple[Chunk, ...]:
    if not entry:
        return ()
    number = int.from_bytes
    return tuple(
        Chunk(
            entry[i : i + 16],
            number(entry[i + 16 : i + 20], "little"),
            number(entry[i + 20 : i + 24], "little"),
        )
        for i in range(0, len(entry), 24)
    )
