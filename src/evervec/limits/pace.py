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


class Pace:
    """The characters of one call, at most; it is told of every call."""

    def __init__(self, max_batch: int) -> None:
        self._least = _CHARACTERS * max(1, max_batch)
        self.characters = max(_FIRST, 2 * self._least)

    def learn(self, characters: int, seconds: float) -> None:
        """A call took so long. One that was short and soon done tells nothing of larger ones."""
        if seconds < SECONDS and characters < self.characters / 4:
            return
        fitting = characters * SECONDS / max(seconds, 0.001)
        bounded = min(max(fitting, self._least, self.characters / 2), 2 * self.characters)
        self.characters = round(bounded)
