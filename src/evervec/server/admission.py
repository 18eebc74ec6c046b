"""Limits on the number of concurrent requests: of a client, of a tenant (429), in total (503).

Each request holds memory, a connection and perhaps a place in a queue. Requests beyond the
limits are rejected at once instead of waiting.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from evervec.server.origin import Proxies, client_network, is_mounted
from evervec.server.problems import Problem
from evervec.server.requests import App, Receive, Scope, Send
from evervec.settings import Settings
from evervec.telemetry.counters import REFUSED

if TYPE_CHECKING:
    from evervec.server.service import Service

_AGAIN = {"Retry-After": "1"}


class _counted:  # noqa: N801 - used as a function; a generator would take three times as long
    """Counts what is in progress in the block, by name."""

    __slots__ = ("_in_progress", "_name")

    def __init__(self, in_progress: Counter[str], name: str) -> None:
        self._in_progress = in_progress
        self._name = name

    def __enter__(self) -> None:
        self._in_progress[self._name] += 1

    def __exit__(self, *_: object) -> None:
        left = self._in_progress[self._name] - 1
        if left:
            self._in_progress[self._name] = left
        else:
            del self._in_progress[self._name]


class Clients:
    """Middleware that determines where a request comes from (`client_address`, `client_scheme` and
    `mounted` in its scope) and limits the concurrent requests of a client.

    A connection has one request in progress at a time, so for clients that connect directly this
    limit equals the one on connections. Behind a trusted proxy it is the only limit per client.
    """

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._proxies = Proxies(settings.trusted_proxies)
        self._most = settings.server_client_connections
        self._under_way: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["mounted"] = is_mounted(scope)
        scope["client_scheme"] = self._proxies.scheme_of(scope)
        address = scope["client_address"] = self._proxies.client_of(scope)
        if not address or self._proxies.trust(address):  # a proxy: it has many clients
            await self._app(scope, receive, send)
            return
        client = client_network(address)
        if self._under_way[client] >= self._most:
            raise Problem(
                429,
                f"this client has {self._most:,} requests in progress (server_client_connections): "
                "wait for their responses",
                headers=_AGAIN,
            )
        with _counted(self._under_way, client):
            await self._app(scope, receive, send)


class Admission:
    """Middleware that limits the requests of a tenant, and of all; those of open paths, such as the
    sign-in page, by client."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        settings = service.ev.settings
        self._most = settings.server_requests
        self._most_of_one = settings.server_tenant_requests
        self._under_way = service.in_progress
        self._unread = service.unread
        self._delays = service.delays
        self._strangers = service.strangers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        caller = scope.get("caller")
        if caller is None:
            stranger = await self._strangers.admit(scope)
            if stranger is None:
                await self._app(scope, receive, send)
                return
            with _counted(self._strangers.under_way, stranger):
                await self._app(scope, receive, send)
            return
        tenant = caller.tenant
        self._unread.check(tenant)
        if self._under_way[tenant] >= self._most_of_one:
            REFUSED.add(1, "tenant")
            await self._delays.hold(tenant)
            raise Problem(
                429,
                f"this tenant has {self._most_of_one} requests in progress "
                "(server_tenant_requests): wait for some of them to finish",
                error="too many requests at once",
                headers=_AGAIN,
            )
        if self._under_way.total() >= self._most:
            REFUSED.add(1, "all")
            raise Problem(
                503,
                f"the service has {self._most} requests in progress (server_requests): try again",
                error="too many requests at once",
                headers=_AGAIN,
            )
        with _counted(self._under_way, tenant):
            left = self._most_of_one - self._under_way[tenant]
            scope["answer_headers"]["Concurrent-Requests-Remaining"] = str(left)
            await self._app(scope, receive, send)
