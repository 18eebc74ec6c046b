"""How much text a provider embeds in a few seconds, learnt from its calls.

What a worker has in hand is lost when it is killed, so it takes no more at once than it will
bring to an end soon: little on a slow machine, as much as memory allows with a fast provider.
"""

from __future__ import annotations

SECONDS = 2.5
"""that one call should take at most"""
_FIRST, _MOST_AT_FIRST = 1 << 14, 1 << 16
_LONG_TEXT = 2000
"""characters: a first call may hold as many such texts as the provider takes, within bounds"""
_CHARACTERS = 125
"""For each text that a call may hold, an eighth of an ordinary chunk. Less at once would mostly
measure how long a provider takes to answer at all."""


_GROWTH = 4
_AT_FIRST = 3


class Pace:
    """The characters of one call, at most; it is told of every call."""

    def __init__(self, max_batch: int) -> None:
        self._texts = max(1, max_batch)
        self._least = _CHARACTERS * self._texts
        usual = min(_LONG_TEXT * self._texts, _MOST_AT_FIRST)
        self.characters = max(_FIRST, usual, 2 * self._least)
        self.learnt = False

    @property
    def of_batch(self) -> int:
        """The characters of a batch: of one call, and of several before anything is known, so
        that a short backlog is not cut into many small calls."""
        return self.characters if self.learnt else _AT_FIRST * self.characters

    def learn(self, texts: int, characters: int, seconds: float) -> None:
        """A call took so long. One that was small and soon done tells nothing of larger ones."""
        small = characters < self.characters / 4 and texts < self._texts
        if small and seconds < SECONDS:
            return
        self.learnt = True
        fitting = characters * SECONDS / max(seconds, 0.001)
        bounded = min(max(fitting, self._least, self.characters / 2), _GROWTH * self.characters)
        self.characters = round(bounded)
