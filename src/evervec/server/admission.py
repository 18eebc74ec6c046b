"""Limits on the number of concurrent requests, in total (503) and per tenant (429).

Each request holds memory, a connection and perhaps a place in a queue. Requests beyond the
limits are rejected at once instead of waiting.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evervec.server.problems import Problem
from evervec.server.requests import App, Receive, Scope, Send
from evervec.telemetry.counters import REFUSED

if TYPE_CHECKING:
    from evervec.server.service import Service

_AGAIN = {"Retry-After": "1"}


class Admission:
    """Middleware that counts requests. Open paths such as `/healthz` are not counted."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        settings = service.ev.settings
        self._most = settings.server_requests
        self._most_of_one = settings.server_tenant_requests
        self._under_way = service.under_way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller = scope.get("caller")
        if caller is None:
            await self._app(scope, receive, send)
            return
        tenant = caller.tenant
        try:
            self._check(tenant)
        except Problem as problem:
            REFUSED.add(1, "tenant" if problem.status_code == 429 else "all")
            await problem.response(scope["request_id"])(scope, receive, send)
            return
        self._under_way[tenant] += 1
        left = self._most_of_one - self._under_way[tenant]
        scope["answer_headers"]["Concurrent-Requests-Remaining"] = str(left)
        try:
            await self._app(scope, receive, send)
        finally:
            self._under_way[tenant] -= 1
            if not self._under_way[tenant]:
                del self._under_way[tenant]

    def _check(self, tenant: str) -> None:
        if self._under_way[tenant] >= self._most_of_one:
            raise Problem(
                429,
                f"this tenant has {self._most_of_one} requests in progress "
                "(server_tenant_requests): wait for some of them to finish",
                error="too many requests at once",
                headers=_AGAIN,
            )
        if self._under_way.total() >= self._most:
            raise Problem(
                503,
                f"the service has {self._most} requests in progress (server_requests): try again",
                error="too many requests at once",
                headers=_AGAIN,
            )
