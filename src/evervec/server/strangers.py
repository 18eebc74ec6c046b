"""Limits for requests without a valid key: how many of a client at once, and how often.

Everybody may sign in, and read the API's description. Requests with a key are limited by tenant and
agent instead, so that clients behind one address do not count for each other. What is refused is
delayed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

from evervec.server.body_limits import PUSH_PATHS
from evervec.server.delays import Delays
from evervec.server.origin import Proxies, client_network
from evervec.server.problems import Problem
from evervec.server.rate_limits import MemoryLimiter
from evervec.server.requests import Scope, path_of
from evervec.settings import Settings
from evervec.telemetry.counters import REFUSED

_BURST_SECONDS = 4
_HEALTH = frozenset({"/healthz", "/readyz"})
"""never limited: whatever clients share an address with a load balancer, it must see the state"""


class Strangers:
    """The clients without a key of one service."""

    def __init__(
        self, settings: Settings, delays: Delays, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._proxies = Proxies(settings.trusted_proxies)
        self._most = settings.server_open_requests
        rate = settings.server_open_rate
        self._rate = MemoryLimiter(rate, max(1, int(_BURST_SECONDS * rate)), clock)
        self._delays = delays
        self.under_way: Counter[str] = Counter()
        """requests that need no key, by client"""

    async def admit(self, scope: Scope) -> str | None:
        """The client of a request that needs no key, if it is limited; raises a `Problem` if it has
        too many."""
        client = self._client_of(scope)
        if client is None:
            return None
        await self._take(client)
        if self.under_way[client] >= self._most:
            raise await self._refused(
                client,
                f"this client has {self._most} requests without a key in progress "
                "(server_open_requests): wait for their responses",
                "too many requests at once",
            )
        return client

    async def count_refused(self, scope: Scope) -> None:
        """A request whose key is missing or invalid; raises a `Problem` if there are too many."""
        client = self._client_of(scope)
        if client is not None:
            await self._take(client)

    async def _take(self, client: str) -> None:
        if not self._rate.allow(client):
            raise await self._refused(
                client,
                f"this client sends more than {self._rate.rate:g} requests per second without a "
                "valid key (server_open_rate): retry in 1 s",
                "rate limit exceeded",
            )

    async def _refused(self, client: str, detail: str, error: str) -> Problem:
        REFUSED.add(1, "open")
        await self._delays.hold(client)
        return Problem(429, detail, error=error, headers={"Retry-After": "1"})

    def _client_of(self, scope: Scope) -> str | None:
        """The client of a request that is limited; None: it is unknown, or this is not limited."""
        path, address = path_of(scope), scope["client_address"]
        if path in _HEALTH or path.startswith(PUSH_PATHS):  # deliveries check their own secrets
            return None
        if not address or self._proxies.trust(address):  # a proxy: it has many clients
            return None
        return client_network(address)
