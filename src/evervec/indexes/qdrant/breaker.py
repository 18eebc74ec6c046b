"""A circuit breaker: a failing server is not called for a while, so that no caller waits for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from evervec.errors import IndexUnavailable

_LONGEST = 30.0


class Breaker:
    """Opens at a failure, for twice as long each time; then one call is let through as a test."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._why = ""

    def check(self) -> None:
        """Raise at once while it is open."""
        with self._lock:
            if self._failures and self._clock() < self._until:
                raise IndexUnavailable(self._why)
            if self._failures:
                self._wait()  # this call is the test, and others wait for its result

    def failed(self, why: str) -> None:
        with self._lock:
            self._failures += 1
            self._why = why
            self._wait()

    def _wait(self) -> None:
        self._until = self._clock() + min(0.5 * 2 ** min(self._failures, 10), _LONGEST)

    def worked(self) -> None:
        self._failures = 0
