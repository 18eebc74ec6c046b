"""While the service is busy, a tenant that asks for more than its share is refused.

All requests pass through one event loop. When that runs late, every request that it takes delays
all others, however soon it is refused later. A limit for each agent cannot prevent this, because
it does not know how many tenants ask. So while the loop is late, no tenant may have more than
one and a half times what tenants ask for on average; alone, a tenant may have everything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

_TICK = 0.05
_LATE = 0.05
"""seconds by which the event loop may be late"""
_BUSY = 2.0
"""seconds for which the service counts as busy after that"""
_SHARE = 1.5
_LEAST = 50.0
"""requests that every tenant may make in the time that is looked at"""


class Shares:
    """What tenants asked for in this second and in the one before."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._second = 0
        self._now: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._asked = self._tenants = 0
        """what all of them asked for in both seconds, and how many they are"""
        self._busy_until = float("-inf")

    @property
    def busy(self) -> bool:
        return self._clock() < self._busy_until

    def late(self, seconds: float) -> None:
        """The event loop did something so many seconds later than it should have."""
        if seconds > _LATE:
            self._busy_until = self._clock() + _BUSY

    def take(self, tenant: str, cost: int) -> bool:
        """Count a request, unless its tenant has had more than its share."""
        second = int(self._clock())
        if second != self._second:
            self._before = self._now if second == self._second + 1 else {}
            self._now, self._second = {}, second
            self._asked, self._tenants = sum(self._before.values()), len(self._before)
        if self.busy and not self._may(tenant):
            return False
        if tenant not in self._now and tenant not in self._before:
            self._tenants += 1
        self._now[tenant] = self._now.get(tenant, 0) + cost
        self._asked += cost
        return True

    def _may(self, tenant: str) -> bool:
        known = tenant in self._now or tenant in self._before
        tenants = self._tenants + (not known)
        own = self._now.get(tenant, 0) + self._before.get(tenant, 0)
        return tenants == 1 or own < max(_LEAST, _SHARE * self._asked / tenants)

    async def tend(self) -> None:
        """Watch the event loop, until cancelled."""
        while True:
            began = self._clock()
            await asyncio.sleep(_TICK)
            self.late(self._clock() - began - _TICK)
