"""How long to wait after failures, and a circuit breaker: a failing server is not called for a
while, so that no caller waits for it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable


def backoff(
    failures: int,
    first: float,
    longest: float,
    jitter: float = 0.0,
    rng: random.Random | None = None,
) -> float:
    """Seconds to wait after so many failures in a row: doubled with each, capped. With `rng`, up to
    the share `jitter` is added or taken away."""
    wait = min(first * 2.0 ** min(max(failures - 1, 0), 60), longest)
    return wait if rng is None else wait * (1 + jitter * rng.uniform(-1, 1))


class Breaker:
    """Opens at a failure, for twice as long each time; then one call is let through as a test."""

    def __init__(
        self, first: float, longest: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._first, self._longest = first, longest
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0
        self._until = 0.0
        self._why = ""

    @property
    def open(self) -> bool:
        """Whether the server is left alone now."""
        return self._failures > 0 and self._clock() < self._until

    def check(self, error: type[Exception]) -> None:
        """Raise `error` at once, with the reason of the last failure, while it is open."""
        with self._lock:
            if self.open:
                raise error(self._why)
            if self._failures:
                self._wait()  # this call is the test, and others wait for its result

    def failed(self, why: str, seconds: float = 0.0) -> None:
        """`seconds`: how long the server asks to be left alone, if it does."""
        with self._lock:
            self._failures += 1
            self._why = why
            self._wait(min(seconds, self._longest))

    def _wait(self, least: float = 0.0) -> None:
        wait = max(least, backoff(self._failures, self._first, self._longest))
        self._until = self._clock() + wait

    def worked(self) -> None:
        self._failures = 0
