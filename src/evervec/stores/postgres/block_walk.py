"""A walk over a table that no index orders by age: block by block, in many calls.

Tables of ended jobs and attempts are large, and an index on their times would cost every finish
more than the purge costs: rows end in about the order in which they are stored, so the old ones are
next to each other.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


class BlockWalk:
    """Where a process is on its way around a table."""

    def __init__(self) -> None:
        self._start = random.random()  # so that processes that restart often see all blocks
        self.place: int | None = None
        """the next block"""

    def pieces(self, blocks: int, share: int) -> Iterator[tuple[int, int]]:
        """The next `share` of a table with so many blocks: one range, or two around its end. Once a
        caller has seen a range, the next one begins after it."""
        if self.place is None:
            self.place = int(self._start * blocks)
        place = self.place if self.place < blocks else 0
        end = min(place + share, blocks)
        yield place, end
        self.place = end
        rest = min(share - (end - place), place)
        if rest > 0:
            yield 0, rest
            self.place = rest


def tids(first: int, end: int) -> tuple[str, str]:
    """The places (ctid) from which and before which the rows of a range of blocks are."""
    return f"({first},0)", f"({end},0)"
