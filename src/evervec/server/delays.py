"""Delays refusals, to slow down clients that ask again at once.

A refusal takes the event loop about as long as a short response, so a client that only is refused could
keep it busy. A connection has one request in progress at a time: while its refusal is delayed, the client
sends no other on it. A few refusals per second are sent at once: most clients wait after one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from evervec.server.rate_limits import MemoryLimiter

SECONDS = 1.0
"""what `Retry-After` asks for"""
_RATE, _BURST = 2.0, 10
"""refusals of one client or tenant per second that are not delayed"""
_MOST = 1000
"""refusals that are delayed at once, of all clients"""


class Delays:
    """The refusals that are being delayed."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._at_once = MemoryLimiter(_RATE, _BURST, clock)
        self._held = 0

    def begin(self, whose: str) -> bool:
        """Whether to delay a refusal of this client or tenant by `SECONDS`, and then call `end`."""
        if self._held >= _MOST or self._at_once.allow(whose):
            return False
        self._held += 1
        return True

    def end(self) -> None:
        self._held -= 1

    async def hold(self, whose: str) -> None:
        """Delay a refusal, if it is to be."""
        if self.begin(whose):
            try:
                await asyncio.sleep(SECONDS)
            finally:
                self.end()
