"""Splits a text into chunks that can be recognised after an edit.

A chunk is identified by the hash of the record's title and of the piece of text, not by its
position, so a piece that only moved is not embedded again. Context that a chunker adds to a piece,
such as the headings above it, is embedded with it but is not part of the hash: an edit of a heading
far above does not embed it again. If a model's window is limited, title and headings are cut, so
that all of the piece is embedded. Chunkers are named by short specifications such as `size:1000`,
so that a worker in another process splits the same way.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeVar

from evervec.chunking.characters import whole
from evervec.model.records import Chunk

T = TypeVar("T")
Span = tuple[int, int]
Counting = Generator[Sequence[str], Sequence[int], T]
"""makes a T; yields texts to be counted, and is sent the size of each"""


class Piece(NamedTuple):
    """A span of a text, with context that describes its place in the text."""

    start: int
    end: int
    context: str = ""


class Window(NamedTuple):
    """How much of a text a model reads; the rest is cut off."""

    most: int
    count: Callable[[str], int]
    """a text's size in characters, or in tokens; a character is at most one token"""

    def holds(self, text: str) -> bool:
        return len(text) <= self.most or self.count(text) <= self.most


@dataclass(frozen=True, slots=True)
class Measure:
    """A way to count, with a name by which another process recognises it.

    `count` is called once for each block of a text, and for parts of blocks that are too large; the
    sum is taken as the size of the whole. So it should not count the special tokens that a model
    adds to every text.
    """

    name: str
    count: Callable[[str], int]
    count_all: Callable[[Sequence[str]], Sequence[int]] | None = None
    """counts many texts at once, if that is faster"""


def measure_with(measure: Measure, counting: Counting[T]) -> T:
    """What a generator makes that is given the sizes for which it asks."""
    try:
        asked = next(counting)
        while True:
            if measure.count_all is None or len(asked) < 2:
                sizes: Sequence[int] = [measure.count(text) for text in asked]
            else:
                sizes = measure.count_all(asked)
            asked = counting.send(sizes)
    except StopIteration as end:
        made: T = end.value
        return made


def together(countings: Sequence[Counting[T]]) -> Counting[list[T]]:
    """Runs several generators side by side, so that all their texts are counted at once."""
    made: dict[int, T] = {}
    asked: dict[int, Sequence[str]] = {}

    def advance(place: int, sizes: Sequence[int] | None) -> None:
        try:
            counting = countings[place]
            asked[place] = next(counting) if sizes is None else counting.send(sizes)
        except StopIteration as end:
            asked.pop(place, None)
            made[place] = end.value

    for place in range(len(countings)):
        advance(place, None)
    while asked:
        sizes = yield [text for texts in asked.values() for text in texts]
        start = 0
        for place, texts in list(asked.items()):
            advance(place, sizes[start : start + len(texts)])
            start += len(texts)
    return [made[place] for place in range(len(countings))]


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


BYTES = Measure("bytes", _bytes)
"""Bytes of UTF-8: one for an English letter, more in scripts where models use more tokens per
letter. It estimates tokens in any script, at about four bytes to one token."""


class Chunker(Protocol):
    """Splits a text into pieces: spans in order, with or without context."""

    spec: str
    """a name that fully describes how it splits; every process knows `size:…` and `content:…`"""

    def split(self, text: str) -> Iterable[Span | Piece]: ...

    # Optional: `split_all(texts)`, the pieces of each of several texts.


def embedded_text(title: str | None, text: str, start: int, end: int, context: str = "") -> str:
    """The text that is embedded for a piece: title, context and piece."""
    piece = text[start:end]
    if not title and not context:
        return piece
    return "\n\n".join(part for part in (title, context, piece) if part)


def hash_text(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=16).digest()


def chunk(
    chunker: Chunker, title: str | None, text: str, window: Window | None = None
) -> tuple[list[Chunk], list[str]]:
    """The chunks of a text and the text embedded for each, in order."""
    return _chunks(chunker.split(text), title, text, window)


Chunked = tuple[list[Chunk], list[str]]


def chunk_all(
    chunker: Chunker, given: Sequence[tuple[str | None, str]], window: Window | None = None
) -> Iterator[Chunked | Exception]:
    """The chunks of each title and text, or the error of a chunker that could not split it. All
    texts are measured at once where the chunker can."""
    split_all = getattr(chunker, "split_all", None)
    splits: Sequence[Iterable[Span | Piece] | None] = [None] * len(given)
    if split_all is not None:
        with suppress(Exception):  # one by one, it is known whose text it was
            answers = list(split_all([text for _, text in given]))
            if len(answers) == len(given):
                splits = answers
    for (title, text), split in zip(given, splits, strict=True):
        try:
            yield _chunks(chunker.split(text) if split is None else split, title, text, window)
        except Exception as error:  # noqa: BLE001 - a kind's own chunker may raise anything
            yield error


def _chunks(
    split: Iterable[Span | Piece], title: str | None, text: str, window: Window | None
) -> Chunked:
    chunks, texts = [], []
    for start, end, *rest in split:
        head, context = title, rest[0] if rest else ""
        if window is not None and (head or context):
            head, context = _fitted(head or "", context, text[start:end], window)
        known = embedded_text(head, text, start, end)
        chunks.append(Chunk(hash_text(known), start, end))
        texts.append(embedded_text(head, text, start, end, context) if context else known)
    return chunks, texts


class Cutter(NamedTuple):
    """How the texts of a collection are split for its model."""

    chunker: Chunker
    window: Window | None = None

    def cut(self, title: str | None, text: str) -> tuple[list[Chunk], list[str]]:
        return chunk(self.chunker, title, text, self.window)

    def hash_at(self, title: str | None, text: str, start: int, end: int) -> bytes:
        """The hash of the chunk at that span."""
        head = title
        if self.window is not None and title:
            head, _ = _fitted(title, "", text[start:end], self.window)
        return hash_text(embedded_text(head, text, start, end))


def _fitted(title: str, context: str, piece: str, window: Window) -> tuple[str, str]:
    """As much of title and context as the window holds together with a piece: all of the title
    before any of the context. If the piece fills the window by itself, both are returned
    unchanged."""

    def fits(*before: str) -> bool:
        return window.holds("\n\n".join(part for part in (*before, piece) if part))

    if fits(title, context) or not fits():
        return title, context
    title = _beginning(title, fits)
    return title, _beginning(context, lambda head: fits(title, head))


_WORD = re.compile(r"\S+")


def _beginning(text: str, fits: Callable[[str], bool]) -> str:
    """The longest beginning of a text that fits, ending at a word if possible."""
    if fits(text):
        return text
    ends = [match.end() for match in _WORD.finditer(text)]
    words = bisect_left(ends, True, key=lambda end: not fits(text[:end]))
    if words:
        return text[: ends[words - 1]]
    length = bisect_left(range(len(text)), True, key=lambda end: not fits(text[: end + 1]))
    return text[: whole(text, length)] if length else ""
