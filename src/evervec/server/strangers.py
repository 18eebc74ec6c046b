"""Limits for requests without a valid key: how many of a client at once, and how often.

Everybody may sign in, and read the API's description. Requests with a key are limited by tenant and
agent instead, so that clients behind one address do not count for each other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evervec.server.body_limits import PUSH_PATHS
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

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._proxies = Proxies(settings.trusted_proxies)
        self._most = settings.server_open_requests
        rate = settings.server_open_rate
        self._rate = MemoryLimiter(rate, max(1, int(_BURST_SECONDS * rate)), clock)
        self._under_way: Counter[str] = Counter()

    @contextmanager
    def counted(self, scope: Scope) -> Iterator[None]:
        """A request that needs no key; raises a `Problem` if its client has too many."""
        client = self._client_of(scope)
        if client is None:
            yield
            return
        self._take(client)
        if self._under_way[client] >= self._most:
            REFUSED.add(1, "open")
            raise Problem(
                429,
                f"this client has {self._most} requests without a key in progress "
                "(server_open_requests): wait for their responses",
                error="too many requests at once",
                headers={"Retry-After": "1"},
            )
        self._under_way[client] += 1
        try:
            yield
        finally:
            self._under_way[client] -= 1
            if not self._under_way[client]:
                del self._under_way[client]

    def count_refused(self, scope: Scope) -> None:
        """A request whose key is missing or invalid; raises a `Problem` if there are too many."""
        client = self._client_of(scope)
        if client is not None:
            self._take(client)

    def _take(self, client: str) -> None:
        if not self._rate.allow(client):
            REFUSED.add(1, "open")
            raise Problem(
                429,
                f"this client sends more than {self._rate.rate:g} requests per second without a "
                "valid key (server_open_rate): retry in 1 s",
                error="rate limit exceeded",
                headers={"Retry-After": "1"},
            )

    def _client_of(self, scope: Scope) -> str | None:
        """The client of a request that is limited; None: it is unknown, or this is not limited."""
        path, address = path_of(scope), scope["client_address"]
        if path in _HEALTH or path.startswith(PUSH_PATHS):  # deliveries check their own secrets
            return None
        if not address or self._proxies.trust(address):  # a proxy: it has many clients
            return None
        return client_network(address)
