"""Rate limits: token buckets, one per key.

A bucket holds `burst` tokens and gains `rate` tokens per second; a request takes one, or its cost.
A request that costs more than the bucket holds passes if there is at least one token; the bucket
then goes into debt. A new key starts with a full bucket. This limiter is for a single process;
`redis_rate_limits.py` shares the buckets between processes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

IDLE_SECONDS = 600.0
"""an unused key is forgotten after this time, and starts full again"""
_SWEEP_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Allowance:
    """The decision of a limiter: true if the request may pass."""

    allowed: bool
    remaining: int
    """requests that would pass now"""
    retry_after: float = 0.0
    """seconds until the next one passes"""

    def __bool__(self) -> bool:
        return self.allowed


class Limiter(Protocol):
    """Counts requests by key. It is thread-safe and never raises: requests that cannot be
    counted pass, and increment `errors`."""

    rate: float
    burst: int
    errors: int
    blocks: bool
    """`allow` uses the network, so it must not run in an event loop"""

    def allow(self, key: str, cost: int = 1) -> Allowance: ...

    def close(self) -> None: ...


def judged(tokens: float, rate: float, cost: int) -> Allowance:
    """The decision for a bucket with `tokens`."""
    if tokens >= 1.0:
        return Allowance(True, max(0, math.floor(tokens - cost)))
    return Allowance(False, 0, (1.0 - tokens) / rate)


class MemoryLimiter:
    """Buckets in the memory of this process."""

    blocks = False

    def __init__(
        self, rate: float = 100.0, burst: int = 200, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rate, self.burst = rate, burst
        self.errors = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[str, tuple[float, float]] = {}
        """by key: tokens, and the time of that count"""
        self._next_sweep = clock() + _SWEEP_SECONDS

    def allow(self, key: str, cost: int = 1) -> Allowance:
        with self._lock:
            now = self._clock()
            if now >= self._next_sweep:
                self._sweep(now)
            tokens, counted = self._buckets.get(key, (float(self.burst), now))
            tokens = min(self.burst, tokens + max(0.0, now - counted) * self.rate)
            answer = judged(tokens, self.rate, cost)
            self._buckets[key] = (tokens - cost if answer else tokens, now)
            return answer

    def _sweep(self, now: float) -> None:
        self._next_sweep = now + _SWEEP_SECONDS
        kept = {k: b for k, b in self._buckets.items() if now - b[1] < IDLE_SECONDS}
        self._buckets = kept

    def __len__(self) -> int:
        return len(self._buckets)

    def close(self) -> None:
        self._buckets.clear()
