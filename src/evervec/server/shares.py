"""Rejects requests of tenants that exceed their share while the service is busy.

All requests pass through one event loop. When the loop lags, every accepted request delays all
others, even if it is rejected later. Rate limits per agent cannot prevent this, because they do
not know the number of active tenants. So while the loop lags, a tenant may make at most one and a
half times the average number of requests per tenant, multiplied by its weight; a single active tenant
is not limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_TICK = 0.05
_MOST_LAG = 0.05
"""seconds by which the event loop may lag"""
_BUSY = 2.0
"""seconds for which the service counts as busy after a lag"""
_SHARE = 1.5
_ALWAYS_ALLOWED = 100.0
"""Requests that every tenant may make within the two seconds that are counted: of so few, one tenant
may have twice as many as another by chance."""


class Shares:
    """The cost of requests by tenant, in the current and the previous second."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        weight_of: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """`weight_of`: must not block."""
        self._clock = clock
        self._weight_of = weight_of
        self._second = 0
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._asked = 0
        """cost of all requests in both seconds"""
        self._weights: dict[str, int] = {}
        """of the tenants in both seconds, as they were when these began"""
        self._weight = 0
        """their sum"""
        self._busy_until = float("-inf")

    @property
    def busy(self) -> bool:
        return self._clock() < self._busy_until

    def report_lag(self, seconds: float) -> None:
        """Report that the event loop lags by `seconds`."""
        if seconds > _MOST_LAG:
            self._busy_until = self._clock() + _BUSY

    def take(self, tenant: str, cost: int) -> bool:
        """Count a request; False if its tenant exceeds its share."""
        self._turn()
        if self.busy and not self._is_below_share(tenant):
            return False
        self._count(tenant, cost)
        return True

    def charge(self, tenant: str, cost: int) -> None:
        """Count more of a request that was taken: its response is long."""
        self._turn()
        self._count(tenant, cost)

    def _turn(self) -> None:
        """Begin a new second, if one has begun."""
        second = int(self._clock())
        if second != self._second:
            self._before = self._now if second == self._second + 1 else {}
            self._now, self._second = {}, second
            self._asked = sum(self._before.values())
            self._weights = {name: self._weight_of(name) for name in self._before}
            self._weight = sum(self._weights.values())

    def _count(self, tenant: str, cost: int) -> None:
        if tenant not in self._weights:
            self._weights[tenant] = self._weight_of(tenant)
            self._weight += self._weights[tenant]
        self._now[tenant] = self._now.get(tenant, 0) + cost
        self._asked += cost

    def _is_below_share(self, tenant: str) -> bool:
        known = self._weights.get(tenant)
        weight = known or self._weight_of(tenant)
        others = self._weight - (known or 0)
        own = self._now.get(tenant, 0) + self._before.get(tenant, 0)
        share = self._asked * weight / (others + weight)
        return not others or own < max(_ALWAYS_ALLOWED, _SHARE * share)

    async def measure_lag(self) -> None:
        """Measure the event loop's lag; runs until cancelled."""
        while True:
            began = self._clock()
            await asyncio.sleep(_TICK)
            self.report_lag(self._clock() - began - _TICK)
