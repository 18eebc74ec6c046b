"""Chunks whose boundaries survive edits.

Every place where a text could be cut has a rank: how good a place it is (a heading, a paragraph, an
item of a list, …), and among equals a hash of the first words after it. The places are tried in
that order. A cut is made where the piece that it divides is larger than `most` and neither side
would be smaller than `least`. No rank depends on the distance from the start, so an edit moves only
the cuts around it: unchanged text keeps its chunks, wherever it moves.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate, pairwise
from zlib import crc32

from evervec.chunking.base import BYTES, Counting, Measure, Piece, measure_with, together
from evervec.chunking.division import late_start, measured
from evervec.chunking.structure import Block, blocks
from evervec.errors import InvalidArgument

_FIRST_WORDS = 24  # characters after a place that are hashed; an edit behind them keeps its rank
_SPEC = re.compile(r"content:(?:(\d+)-)?(\d+)(?:\+(\d+))?(?:@(.+))?")


class ContentChunker:
    """Pieces of `least` to `most`, cut at headings, otherwise paragraphs or list items. Only what
    is too large by itself is cut at lines, sentences or words.

    Sizes are in `measure`: bytes, or the tokens of the embedding model. Fenced code and tables stay
    whole where they fit. A piece is smaller than `least` only beside a block that nearly fills a
    chunk. `overlap` begins each piece with the end of the previous one, within `most`; an edit then
    embeds the next chunk again, too. The headings above a piece are its context; they do not count
    towards its size.
    """

    def __init__(
        self,
        most: int = 1600,
        least: int | None = None,
        overlap: int = 0,
        measure: Measure = BYTES,
    ) -> None:
        least = (most - overlap) // 4 if least is None else least
        if most < 16:
            raise InvalidArgument(f"most must be at least 16, not {most}")
        if not 0 <= overlap <= most // 2:
            raise InvalidArgument(f"overlap must be between 0 and half of {most}, not {overlap}")
        if not 0 <= least <= (most - overlap) // 2:
            raise InvalidArgument(
                f"least must be between 0 and half of {most - overlap}, not {least}"
            )
        self.most = most
        self.least = least
        self.overlap = overlap
        self.measure = measure
        self.whole = most  # a character is at least one byte, and at most one token
        self.spec = f"content:{least}-{most}"
        if overlap:
            self.spec += f"+{overlap}"
        if measure is not BYTES:
            self.spec += f"@{measure.name}"

    @classmethod
    def parse(cls, spec: str, measure: Measure = BYTES) -> ContentChunker | None:
        """The chunker that a specification names; None if it needs another measure than the given
        one."""
        found = _SPEC.fullmatch(spec)
        if found is None:
            return None
        least, most, overlap, name = found.groups()
        if name is None:
            measure = BYTES
        elif name != measure.name:
            return None
        return cls(int(most), int(least) if least else None, int(overlap or 0), measure)

    def split(self, text: str) -> list[Piece]:
        (pieces,) = self.split_all([text])
        return pieces

    def split_all(self, texts: Sequence[str]) -> list[list[Piece]]:
        """The pieces of each text; those that have to be cut are measured together."""
        most = self.most - self.overlap
        small = [BYTES.count(text) <= most for text in texts]
        large = [self._cut(text) for text, fits in zip(texts, small, strict=True) if not fits]
        cut = iter(measure_with(self.measure, together(large)))
        return [
            _whole(text) if fits else next(cut) for text, fits in zip(texts, small, strict=True)
        ]

    def _cut(self, text: str) -> Counting[list[Piece]]:
        most = self.most - self.overlap
        # what is not cut further: blocks, and the parts of blocks that are too large
        parts = yield from measured(text, list(blocks(text)), most)
        if len(parts) == 1:
            return [Piece(parts[0].start, parts[0].end, parts[0].context)]
        gaps = [text[part.end : after.start] for part, after in pairwise(parts)]
        sizes = {"": 0}
        if others := [gap for gap in dict.fromkeys(gaps) if gap]:
            sizes.update(zip(others, (yield others), strict=True))
        row = _Row(text, parts, [sizes[gap] for gap in gaps], self)
        found: list[Piece] = []
        before: Piece | None = None
        for first, behind in pairwise(row.cuts()):
            piece = Piece(parts[first].start, parts[behind - 1].end, parts[first].context)
            found.append(self._overlapping(text, before, piece))
            before = piece
        return found

    def _overlapping(self, text: str, before: Piece | None, piece: Piece) -> Piece:
        if before is None or not self.overlap:
            return piece
        start = late_start(text, before.start, piece.start, self.overlap, self.measure.count)
        return piece._replace(start=start)


def _whole(text: str) -> list[Piece]:
    """The only piece of a text that is small enough, whatever it contains."""
    start = len(text) - len(text.lstrip())
    return [Piece(start, len(text.rstrip()))] if start < len(text) else []


class _Row:
    """The parts of a text, and the cuts between them, as part numbers."""

    def __init__(
        self, text: str, parts: Sequence[Block], gaps: Sequence[int], chunker: ContentChunker
    ) -> None:
        """`gaps`: the sizes of what is between the parts."""
        self._most = chunker.most - chunker.overlap
        self._least = chunker.least
        self._ranks = _ranks(text, parts)
        before = [0, *gaps][: len(parts)]
        sizes = (gap + part.size for gap, part in zip(before, parts, strict=True))
        self._ends: list[int] = list(accumulate(sizes))
        self._begins = [end - part.size for end, part in zip(self._ends, parts, strict=True)]
        """where the parts begin and end, as cumulative sizes of parts and gaps"""

    def cuts(self) -> list[int]:
        """The start of each piece, and the end of the last."""
        count = len(self._ranks)
        if not count:
            return []
        cuts = [0, count]
        order = sorted(range(1, count), key=self._ranks.__getitem__)
        for least in (self._least, self._least // 4, 0):
            self._cut(cuts, order, least)
            if all(self._size(*piece) <= self._most for piece in pairwise(cuts)):
                break
        return cuts

    def _cut(self, cuts: list[int], order: Sequence[int], least: int) -> None:
        """Cut wherever both sides are at least `least`. A place that is skipped now would be
        skipped later too, because the piece around it only becomes smaller."""
        for place in order:
            at = bisect_left(cuts, place)
            first, behind = cuts[at - 1], cuts[at]
            if (
                behind != place
                and self._size(first, behind) > self._most
                and self._size(first, place) >= least
                and self._size(place, behind) >= least
            ):
                cuts.insert(at, place)

    def _size(self, first: int, behind: int) -> int:
        return self._ends[behind - 1] - self._begins[first]


def _ranks(text: str, parts: Sequence[Block]) -> list[int]:
    """The rank of each part's start as a place to cut; the lowest is the best."""
    ranks = [
        part.level << 64 | _hash(text[part.start : min(part.end, part.start + _FIRST_WORDS)]) << 32
        for part in parts
    ]
    if len(set(ranks)) < len(ranks):  # several parts have the same first words, as in a log
        return [
            rank | _hash(text[part.start : part.end])
            for rank, part in zip(ranks, parts, strict=True)
        ]
    return ranks


def _hash(text: str) -> int:
    return crc32(text.encode(errors="surrogatepass")) * 0x9E3779B1 & 0xFFFFFFFF
