"""The weights of tenants: how much of a busy service each may use, relative to others.

They are part of a tenant's limits, in the store. A look at a weight never waits for the store: it
is the one that was read last, after one of the tenant's own requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from evervec.errors import EvervecError
from evervec.model.deadlines import deadline
from evervec.model.usage import Limits

_HOLDS = 5.0
"""seconds after which the weight of an active tenant is read again"""
_PATIENCE = 1.0
_MOST_KNOWN = 10_000


class Weights:
    """The weights of tenants that made requests recently; 1 for those that are not known yet."""

    def __init__(
        self, limits: Callable[[str], Limits], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, int]] = {}
        """by tenant: until when it need not be read again, and the weight"""

    def of(self, tenant: str) -> int:
        known = self._known.get(tenant)
        return 1 if known is None else known[1]

    def refresh(self, tenant: str) -> None:
        """Read the weight, if that was some seconds ago; it stays as it is while the store does not
        answer."""
        now = self._clock()
        with self._lock:
            until, weight = self._known.pop(tenant, (0.0, 1))
            is_due = now >= until
            # other threads need not read it meanwhile; the most recent last
            self._known[tenant] = (now + _HOLDS if is_due else until, weight)
            if len(self._known) > _MOST_KNOWN:
                del self._known[next(iter(self._known))]
        if not is_due:
            return
        try:
            with deadline(_PATIENCE):
                found = self._limits(tenant).weight or 1
        except EvervecError:
            return
        with self._lock:
            if tenant in self._known:
                self._known[tenant] = (now + _HOLDS, found)
