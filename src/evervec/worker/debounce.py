"""Delays a worker's next claim while jobs trickle in."""

from __future__ import annotations

import time


class Debounce:
    """Waits for more jobs before the next claim, while they trickle in.

    Claiming, embedding and writing one job costs about as much as ten, and in the meantime callers
    that add the next job wait for locks and for the GIL. A job that comes alone is claimed at once.
    """

    few = 16
    seconds = 0.02

    def __init__(self) -> None:
        self._trickles = False
        self._until = 0.0

    @property
    def left(self) -> float:
        """Seconds until the next claim."""
        return self._until - time.monotonic() if self._until else 0.0

    def claimed(self, count: int, limit: int) -> None:
        """Record a claim that found `count` of `limit` jobs. A few jobs time after time, or more
        than one after a wait, are a trickle."""
        gathered = self._until > 0.0
        trickles = gathered < count < min(self.few, limit)
        again = trickles and (gathered or self._trickles)
        self._until = time.monotonic() + self.seconds if again else 0.0
        self._trickles = trickles
