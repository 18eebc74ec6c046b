"""How much text a provider embeds in a few seconds, learnt from its calls.

What a worker has in hand is lost when it is killed, so it takes no more at once than it will
bring to an end soon: little on a slow machine, as much as memory allows with a fast provider.
"""

from __future__ import annotations

SECONDS = 2.5
"""that one call should take at most"""
_FIRST = 1 << 14
_CHARACTERS = 125
"""For each text that a call may hold, an eighth of an ordinary chunk. Less at once would mostly
measure how long a provider takes to answer at all."""


_GROWTH = 4


class Pace:
    """The characters of one batch or call, at most; it is told of every call."""

    def __init__(self, max_batch: int) -> None:
        self._texts = max(1, max_batch)
        self._least = _CHARACTERS * self._texts
        self.characters = max(_FIRST, 2 * self._least)

    def learn(self, texts: int, characters: int, seconds: float) -> None:
        """A call took so long. One that was small and soon done tells nothing of larger ones."""
        small = characters < self.characters / 4 and texts < self._texts
        if small and seconds < SECONDS:
            return
        fitting = characters * SECONDS / max(seconds, 0.001)
        bounded = min(max(fitting, self._least, self.characters / 2), _GROWTH * self.characters)
        self.characters = round(bounded)
