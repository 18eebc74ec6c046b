"""Chunks embedded again after real edits, beside the chunks that the edits touch.

A chunk is embedded again when its hash was not there before. The least that this can be
are the chunks that a line diff touches: those of the new text with an added or changed line
in them, or around a place where lines were deleted. Beside it are other ways to cut, at
equal mean size: windows of fixed length, paragraphs packed until a chunk is full, the plain
chunker, and LangChain's indexing API over its RecursiveCharacterTextSplitter, which counts
what its embedder is asked for. That embeds a chunk again also when its metadata changed:
with `add_start_index`, whatever moved; without, only what changed.

The edits are those of `../shared/data/edits` beside the project, or of the files named in
EVERVEC_EDITS (lines of {"before", "after"}, gzipped or not, parted by the path separator).
"""

from __future__ import annotations

import difflib
import gzip
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from benchmarks.langchain_peer import over_dict
from benchmarks.table import Line, Target, at_most
from evervec.chunking import Chunker, ContentChunker, SizeChunker, chunk

_DATA = Path(__file__).parents[2] / "shared" / "data" / "edits"
_PARAGRAPH = re.compile(r"\S[^\n]*(?:\n[^\S\n]*\S[^\n]*)*")
_OVERLAP = 200  # the splitter's own default

Span = tuple[int, int]


def run(*, quick: bool) -> Sequence[Line]:
    lines: list[Line] = []
    for path in _files():
        edits = list(_edits(path, 100 if quick else None))
        lines += _measure(path.name.partition(".")[0], edits)
    return lines


def _files() -> list[Path]:
    named = os.environ.get("EVERVEC_EDITS")
    files = [Path(name) for name in named.split(os.pathsep)] if named else _DATA.glob("*.jsonl.gz")
    return sorted(files)


@dataclass(frozen=True)
class Edit:
    before: str
    after: str
    written: Sequence[Span]
    """the added and changed lines of `after`"""
    deleted: Sequence[int]
    """where in it lines are gone"""

    def touches(self, start: int, end: int) -> bool:
        written = (self.after[max(s, start) : min(e, end)] for s, e in self.written)
        return any(map(str.strip, written)) or any(start < at < end for at in self.deleted)


def _edits(path: Path, limit: int | None) -> Iterator[Edit]:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number == limit:
                return
            edit = json.loads(line)
            yield Edit(edit["before"], edit["after"], *_changes(edit["before"], edit["after"]))


def _changes(before: str, after: str) -> tuple[list[Span], list[int]]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    same = _alike(old, new)
    tail = _alike(old[same:][::-1], new[same:][::-1])
    starts = [0]
    for line in new:
        starts.append(starts[-1] + len(line))
    matcher = difflib.SequenceMatcher(
        None, old[same : len(old) - tail], new[same : len(new) - tail], autojunk=False
    )
    written, deleted = [], []
    for what, _, _, first, behind in matcher.get_opcodes():
        if what == "delete":
            deleted.append(starts[same + first])
        elif what != "equal":
            written.append((starts[same + first], starts[same + behind]))
    return written, deleted


def _alike(some: Sequence[str], others: Sequence[str]) -> int:
    """How many are the same from the start."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(some), len(others)))


@dataclass(frozen=True)
class Windows:
    """Fixed lengths, counted from the start."""

    size: int
    spec = "windows"

    def split(self, text: str) -> Iterator[Span]:
        for start in range(0, len(text), self.size):
            yield start, min(len(text), start + self.size)


@dataclass(frozen=True)
class Paragraphs:
    """Paragraphs, packed from the start until a chunk is full."""

    size: int
    spec = "paragraphs"

    def split(self, text: str) -> Iterator[Span]:
        start = end = -1
        for match in _PARAGRAPH.finditer(text):
            if start >= 0 and match.end() - start > self.size:
                yield start, end
                start = -1
            start, end = match.start() if start < 0 else start, match.end()
        if start >= 0:
            yield start, end


@dataclass(frozen=True)
class Count:
    chunks: int
    touched: int
    again: int
    mean: float

    @property
    def excess(self) -> float:
        return self.again / self.touched


def _count(chunker: Chunker, edits: Sequence[Edit]) -> Count:
    touched = again = 0
    sizes: list[int] = []
    for edit in edits:
        known = {piece.hash for piece in chunk(chunker, None, edit.before)[0]}
        pieces, _ = chunk(chunker, None, edit.after)
        sizes += (piece.end - piece.start for piece in pieces)
        touched += sum(edit.touches(piece.start, piece.end) for piece in pieces)
        again += len({piece.hash for piece in pieces} - known)
    return Count(len(sizes), touched, again, fmean(sizes))


def _measure(name: str, edits: Sequence[Edit]) -> Iterator[Line]:
    ours = _count(ContentChunker(), edits)
    yield Line(
        f"{name}, mean size of a chunk", "characters", ours.mean,
        target=Target("800 to 1,200", lambda mean: 800 <= mean <= 1200), own=True,
    )  # fmt: skip
    yield Line(f"{name}, touched by the diff", "% of chunks", 100 * ours.touched / ours.chunks)
    what = f"{name}, embedded again for each touched"
    yield Line(what, "chunks", ours.excess, target=at_most(1.12), own=True)
    for beside, make in _OTHERS.items():
        other = _count(_sized(make, ours.mean, edits), edits)
        yield Line(what, "chunks", ours.excess, beside, other.excess)
    if find_spec("langchain_text_splitters") is None:
        yield Line(f"{name}, embedded again", "chunks", ours.again, "(no langchain-text-splitters)")
        return
    for beside, overlap, positions, target in (
        ("LangChain, with positions", _OVERLAP, True, at_most(0.5)),
        ("LangChain", _OVERLAP, False, None),
        ("LangChain, no overlap", 0, False, None),
    ):
        again = _langchain(edits, ours.mean, overlap, positions)
        yield Line(f"{name}, embedded again", "chunks", ours.again, beside, again, target)


_OTHERS: Mapping[str, Callable[[int], Chunker]] = {
    "paragraphs, packed": Paragraphs,
    "the plain chunker": SizeChunker,
    "windows": Windows,
}


def _sized(make: Callable[[int], Chunker], mean: float, edits: Sequence[Edit]) -> Chunker:
    def mean_of(size: int) -> float:
        spans = (span for edit in edits for span in make(size).split(edit.after))
        return fmean(end - start for start, end, *_ in spans)

    return make(_size_for(mean, mean_of))


def _size_for(mean: float, mean_of: Callable[[int], float]) -> int:
    """The size to ask for, so that chunks have that mean size."""
    size = mean
    for _ in range(4):
        size *= mean / mean_of(round(size))
    return round(size)


def _langchain(edits: Sequence[Edit], mean: float, overlap: int, positions: bool) -> int:
    """Texts that it embeds for the new versions, after the old ones."""
    make = import_module("langchain_text_splitters").RecursiveCharacterTextSplitter

    def mean_of(size: int) -> float:
        splitter = make(chunk_size=size, chunk_overlap=overlap)
        return fmean(len(part) for edit in edits for part in splitter.split_text(edit.after))

    size = _size_for(mean, mean_of)
    splitter = make(chunk_size=size, chunk_overlap=overlap, add_start_index=positions)
    sources = [{"source": str(number)} for number in range(len(edits))]
    peer = over_dict()
    peer.load(splitter.create_documents([edit.before for edit in edits], sources))
    there = peer.embedder.texts
    peer.load(splitter.create_documents([edit.after for edit in edits], sources))
    return peer.embedder.texts - there
