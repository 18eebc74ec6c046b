"""How a worker survives errors: it logs the error, backs off, and continues."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress

from evervec.embedders.base import describe
from evervec.errors import EmbedderError, IndexUnavailable, StoreError
from evervec.runtime.backoff import backoff

log = logging.getLogger("evervec")

PASSING = (StoreError, IndexUnavailable, OSError, MemoryError)
"""failures around the provider calls: they spend no attempt, and work continues after them"""
AROUND = (*PASSING, EmbedderError)
"""everything that is not a bug"""
_OTHERS = (IndexUnavailable, EmbedderError)
"""failures of other systems, which a worker simply waits for: they do not count as its own"""
_LONGEST_PAUSE = 30.0
_FAILURES = 3
"""errors in a row after which a worker counts as failing"""
_STUCK_SECONDS = 120.0
"""seconds without a step after which a worker counts as stuck"""


class Failures:
    """The errors of one worker since its last successful step."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`seconds`: the first pause; it doubles with each error in a row."""
        self._first = seconds
        self._clock = clock
        self._failures = 0
        self._moved_at = clock()

    def moves(self) -> None:
        """A step begins."""
        self._moved_at = self._clock()

    def worked(self) -> None:
        """A step succeeded."""
        self._failures = 0

    def failed(self, error: BaseException) -> float:
        """Log an error; returns the seconds to wait before the next try."""
        seconds = self._first
        if not isinstance(error, _OTHERS):
            self._failures += 1
            seconds = backoff(self._failures, self._first, _LONGEST_PAUSE)
        with suppress(Exception):  # logging may fail for the same reason
            if isinstance(error, AROUND):
                log.error("the worker waits for the store or index: %s", describe(error))
            else:
                log.error("unexpected error in the worker, which continues", exc_info=error)
        return seconds

    @property
    def trouble(self) -> str | None:
        """`failing` or `stuck`; None when healthy."""
        if self._failures >= _FAILURES:
            return "failing"
        return "stuck" if self._clock() - self._moved_at > _STUCK_SECONDS else None
