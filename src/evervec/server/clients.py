"""The client's address, and a limit on its concurrent requests.

A connection has one request in progress at a time, so for clients that connect directly this
limit equals the one on connections. Behind a trusted proxy it is the only limit per client.
"""

from __future__ import annotations

from evervec.server.connections import client_network
from evervec.server.problems import Problem
from evervec.server.requests import App, Receive, Scope, Send
from evervec.server.trust import Proxies, is_mounted
from evervec.settings import Settings


class Clients:
    """Middleware that determines where a request comes from (`client_address` and `mounted` in
    its scope) and limits the concurrent requests of a client."""

    def __init__(self, app: App, settings: Settings) -> None:
        self._app = app
        self._proxies = Proxies(settings.trusted_proxies)
        self._most = settings.server_client_connections
        self._under_way: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scope["mounted"] = is_mounted(scope)
        address = scope["client_address"] = self._proxies.client_of(scope)
        if not address or self._proxies.trust(address):  # a proxy: it has many clients
            await self._app(scope, receive, send)
            return
        client = client_network(address)
        others = self._under_way.get(client, 0)
        if others >= self._most:
            problem = Problem(
                429,
                f"this client has {self._most:,} requests in progress (server_client_connections): "
                "wait for their responses",
                headers={"Retry-After": "1"},
            )
            await problem.response(scope["request_id"])(scope, receive, send)
            return
        self._under_way[client] = others + 1
        try:
            await self._app(scope, receive, send)
        finally:
            left = self._under_way[client] - 1
            if left:
                self._under_way[client] = left
            else:
                del self._under_way[client]
