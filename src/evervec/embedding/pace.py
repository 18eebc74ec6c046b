"""Learns from its calls how much text a provider embeds in a few seconds.

A worker that is killed loses the work in progress, so it takes only as much as it finishes soon:
little on a slow machine, up to the memory limit with a fast provider.
"""

from __future__ import annotations

SECONDS = 2.5
"""target duration of one call, at most"""
_FIRST, _MOST_AT_FIRST = 1 << 14, 1 << 16
_LONG_TEXT = 2000
"""characters: the first call may hold as many texts of this length as the provider accepts, up to
`_MOST_AT_FIRST`"""
_CHARACTERS = 125
"""Minimum per text in a full call: an eighth of an ordinary chunk. A smaller call would mostly
measure the provider's latency."""


_GROWTH = 4
_AT_FIRST = 3


class Pace:
    """The maximum characters of one call, adjusted after every call."""

    def __init__(self, max_batch: int) -> None:
        self._texts = max(1, max_batch)
        self._least = _CHARACTERS * self._texts
        usual = min(_LONG_TEXT * self._texts, _MOST_AT_FIRST)
        self.characters = max(_FIRST, usual, 2 * self._least)
        self.learnt = False

    @property
    def of_batch(self) -> int:
        """The characters of a batch: one call's worth, or several before anything is learnt, so
        that a short backlog is not cut into many small calls."""
        return self.characters if self.learnt else _AT_FIRST * self.characters

    def learn(self, texts: int, characters: int, seconds: float) -> None:
        """Adjust to the duration of a call. A small and fast call says nothing about larger
        ones."""
        small = characters < self.characters / 4 and texts < self._texts
        if small and seconds < SECONDS:
            return
        self.learnt = True
        fitting = characters * SECONDS / max(seconds, 0.001)
        bounded = min(max(fitting, self._least, self.characters / 2), _GROWTH * self.characters)
        self.characters = round(bounded)
