"""How a worker outlives errors: it says what it met, waits longer each time, and goes on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from evervec.embedders.base import describe
from evervec.errors import EmbedderError, IndexUnavailable, StoreError

log = logging.getLogger("evervec")

PASSING = (StoreError, IndexUnavailable, OSError, MemoryError)
"""failures of what is around the provider's calls: they spend no attempt, and work goes on after
them"""
AROUND = (*PASSING, EmbedderError)
"""everything that is not a mistake of the code"""
_OTHERS = (IndexUnavailable, EmbedderError)
"""troubles of others that a worker is made to wait for: it does not fail itself"""
_LONGEST_PAUSE = 30.0
_FAILURES = 3
"""errors in a row after which a worker counts as failing"""
_STUCK_SECONDS = 120.0
"""after which a worker that has not made a move counts as stuck"""


class Endurance:
    """The errors that one worker has met since it last did anything."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds`: the first pause; it doubles each time."""
        self._first = seconds
        self._clock = clock
        self._failures = 0
        self._moved_at = clock()

    def moves(self) -> None:
        """It is about to do something."""
        self._moved_at = self._clock()

    def worked(self) -> None:
        """It did something."""
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Note an error in the log; the seconds to wait before the next try."""
        seconds = self._first
        if not isinstance(error, _OTHERS):
            self._failures += 1
            seconds = min(self._first * 2.0 ** min(self._failures - 1, 10), _LONGEST_PAUSE)
        with suppress(Exception):  # to say so may fail for the same reason
            if isinstance(error, AROUND):
                log.error("work waits for the store or index: %s", describe(error))
            else:
                log.error("the worker met an error, and goes on", exc_info=error)
        return seconds

    @property
    def trouble(self) -> str | None:
        """`failing` or `stuck`; None when all is well."""
        if self._failures >= _FAILURES:
            return "failing"
        return "stuck" if self._clock() - self._moved_at > _STUCK_SECONDS else None
