"""When a worker's next claim is due, while jobs trickle in."""

from __future__ import annotations

import time


class Debounce:
    """Lets more jobs come before the next claim, while they trickle in.

    To claim, embed and write one job costs about as much as ten, and whoever adds the next one
    meanwhile waits for locks and for Python. What comes alone is taken at once.
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
        """So many were found of as many as were wanted. A few time after time, or after a wait more
        than one, are a trickle."""
        gathered = self._until > 0.0
        trickles = gathered < count < min(self.few, limit)
        again = trickles and (gathered or self._trickles)
        self._until = time.monotonic() + self.seconds if again else 0.0
        self._trickles = trickles
