"""Which records contain a word, and how often: the form in which parts of the index are stored.

FTS5 computes a score only after it has counted all records with the word. So the words of a large
tenant's records are also kept here, in parts of some ten thousand records. A search reads two bytes
per record and word for the place of the record in its part, and one for the number of occurrences.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import starmap
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from evervec.stores.sqlite.tokens import WORD_BITS, Tokens, Words

ROWS = 1 << 15
"""records of a part; at most 65,536"""
_MOST_CHARACTERS = 1 << 26
"""a part of longer texts has fewer records"""
_PLACE_BITS = 63 - WORD_BITS
"""of a place and a column"""
_FEW = 16
"""a word with fewer postings in a part shares a row with others"""
_BUCKETS = 256
"""of such rows; they have negative numbers"""
_SHARED = np.dtype([("word", "<i8"), ("place", "<u2"), ("times", "u1")])
_HEAD = struct.Struct("<II")
"""records of a directory, checksum"""

Places = NDArray[np.uint16]
Times = NDArray[np.uint8]


class Text(NamedTuple):
    """The text of a record; one that is not live has None."""

    record: int
    title: str | None
    text: str | None


class Postings(NamedTuple):
    """The words of some records; of `index`, sorted by word, then by place."""

    words: Words
    places: NDArray[np.int64]
    times: Times
    """at most 255; an occurrence in the title counts twice"""

    def joined(self, other: Postings) -> Postings:
        """Both, in this order."""
        return Postings(
            np.concatenate((self.words, other.words)),
            np.concatenate((self.places, other.places)),
            np.concatenate((self.times, other.times)),
        )

    def taken(self, which: NDArray[np.int64]) -> Postings:
        return Postings(self.words[which], self.places[which], self.times[which])


class Directory(NamedTuple):
    """The records of a part by their place."""

    records: NDArray[np.int64]
    sizes: NDArray[np.int32]
    """number of words as FTS5 counts them, with the word that names the tenant; 0: not live"""

    def pack(self) -> bytes:
        data = self.records.tobytes() + self.sizes.tobytes()
        return _HEAD.pack(len(self.records), crc32(data)) + data

    @classmethod
    def unpack(cls, packed: bytes) -> Directory | None:
        """None: it is damaged."""
        if len(packed) < _HEAD.size:
            return None
        count, checksum = _HEAD.unpack_from(packed)
        data = memoryview(packed)[_HEAD.size :]
        if len(data) != 12 * count or crc32(data) != checksum:
            return None
        return cls(np.frombuffer(data, "<i8", count), np.frombuffer(data, "<i4", count, 8 * count))


def are_latest(directories: Sequence[Directory]) -> NDArray[np.bool_]:
    """Of all entries of a tenant's parts, in order: whether no later entry has the same record."""
    records = np.concatenate([np.empty(0, np.int64), *(d.records for d in directories)])
    latest = np.ones(len(records), np.bool_)
    if not (records[1:] > records[:-1]).all():  # else each record has one entry, as after a load
        order = np.argsort(records, kind="stable")
        latest[order[:-1]] = records[order[1:]] != records[order[:-1]]
    return latest


def batches(rows: Iterable[Any], most: int) -> Iterator[list[Text]]:
    """Rows of records in lists of so many, or fewer where texts are long."""
    batch, characters = [], 0
    for text in starmap(Text, rows):
        batch.append(text)
        characters += len(text.text or "")
        if len(batch) == most or characters * ROWS > most * _MOST_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def is_full(texts: Sequence[Text]) -> bool:
    """Whether a list of `batches` is worth a part."""
    characters = sum(len(text.text or "") for text in texts)
    return len(texts) == ROWS or characters > _MOST_CHARACTERS


def index(texts: Sequence[Text], tokens: Tokens) -> tuple[Directory, Postings]:
    """The directory and the postings of some records."""
    in_title, title_sizes = tokens.split([t.title or "" for t in texts])
    in_text, text_sizes = tokens.split([t.text or "" for t in texts])
    live = np.fromiter((t.text is not None for t in texts), np.bool_, len(texts))
    directory = Directory(
        np.fromiter((t.record for t in texts), np.int64, len(texts)),
        np.where(live, 1 + title_sizes + text_sizes, 0).astype(np.int32),
    )
    all = np.arange(len(texts))
    places = np.concatenate((all.repeat(title_sizes), all.repeat(text_sizes)))
    keys = np.concatenate((in_title, in_text)) << _PLACE_BITS | places << 1
    keys[: len(in_title)] |= 1
    keys.sort()
    firsts = _starts(keys >> 1)
    times = np.add.reduceat(1 + (keys & 1), firsts) if len(keys) else keys
    kept = keys[firsts]
    postings = Postings(
        kept >> _PLACE_BITS,
        (kept & (1 << _PLACE_BITS) - 1) >> 1,
        np.minimum(times, 255).astype(np.uint8),
    )
    return directory, postings


def pack(postings: Postings) -> Iterator[tuple[int, bytes]]:
    """The rows of a part: a word or the number of a bucket, and data."""
    places = postings.places.astype("<u2")
    firsts = _starts(postings.words)
    ends = np.append(firsts[1:], len(places))
    many = ends - firsts >= _FEW
    for first, end in zip(firsts[many].tolist(), ends[many].tolist(), strict=True):
        data = places[first:end].tobytes() + postings.times[first:end].tobytes()
        yield int(postings.words[first]), data
    few = np.repeat(~many, ends - firsts)
    shared = np.empty(int(few.sum()), _SHARED)
    shared["word"], shared["place"] = postings.words[few], places[few]
    shared["times"] = postings.times[few]
    buckets = bucket_of(shared["word"])
    order = np.argsort(buckets, kind="stable")
    shared, buckets = shared[order], buckets[order]
    firsts = _starts(buckets)
    for first, end in zip(firsts.tolist(), [*firsts[1:].tolist(), len(shared)], strict=False):
        yield int(buckets[first]), shared[first:end].tobytes()


def bucket_of(words: Words) -> Words:
    """The rows that these words share with others where they have few postings."""
    return -1 - (words & (_BUCKETS - 1))


def unpack(data: bytes) -> tuple[Places, Times]:
    """The postings of a row for one word."""
    count = len(data) // 3
    return np.frombuffer(data, "<u2", count), np.frombuffer(data, "u1", count, 2 * count)


def unpack_shared(data: bytes, word: int) -> tuple[Places, Times]:
    """The postings of a word in a row for several."""
    shared = np.frombuffer(data, _SHARED)
    first = np.searchsorted(shared["word"], word)
    end = np.searchsorted(shared["word"], word, "right")
    return shared["place"][first:end], shared["times"][first:end]


def _starts(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each run of equal values begins."""
    starts = np.ones(len(values), np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts[1:])
    return np.flatnonzero(starts)
