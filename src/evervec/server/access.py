"""Authentication, authorization and rate limits.

A key has a tenant, an agent and a role; it gives access to the records and counts of its tenant
only. Platform admins see all tenants together, or one with `?tenant=`. Until the first key is
created, every client on the same machine is an admin.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from evervec.server.answers import LINES
from evervec.server.body_limits import PUSH_PATHS
from evervec.server.charges import BYTES_PER_REQUEST, IN_SCOPE, Charge
from evervec.server.dashboard.paths import is_open_page, is_page
from evervec.server.dashboard.session import session_of
from evervec.server.deadlines import current_call
from evervec.server.keys import Key, Role
from evervec.server.origin import is_local
from evervec.server.problems import Problem
from evervec.server.rate_limits import Allowance, Limiter
from evervec.server.requests import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    bearer_of,
    headers_of,
    path_of,
)
from evervec.telemetry.counters import LIMITER, REFUSED

if TYPE_CHECKING:
    from evervec.server.service import Service

_BATCH = "/v1/records/batch"
_UNKNOWN_LENGTH_COST = 16
"""number of requests that a body of unknown length counts as, and again for each further part of so
much"""
OPEN_PATHS = frozenset(
    {"/healthz", "/readyz", "/docs", "/docs/style.css", "/openapi.json", "/favicon.ico"}
)
GIVEN_CALLER = "evervec.caller"
"""An application that runs this one inside, and knows its users, puts the `Caller` of a request into
its scope under this name. No header or cookie can."""
_NEEDED = {
    Role.WRITER: "use a writer's key",
    Role.ADMIN: "use a platform admin's key",
}
_NOT_LOCAL = (
    "no keys exist, so only clients on this machine have access, not through a proxy or another "
    "application: create a key with `evervec keys create`, or set open_without_keys"
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request."""

    tenant: str
    agent: str
    role: Role
    key: Key | None = None
    """None: no keys exist, and the client has access without one"""

    @property
    def bucket(self) -> str:
        """The rate limiter's key for this caller."""
        return f"org:{self.tenant}:agent:{self.agent}"

    @property
    def kinds(self) -> tuple[str, ...] | None:
        """The kinds that the caller may read and change; None: all."""
        return self.key.kinds if self.key else None

    def require(self, role: Role) -> None:
        if self.role.rank < role.rank:
            raise Problem(403, f"not allowed with a {self.role}'s key: {_NEEDED[role]}")


class Access:
    """Middleware that checks the key and applies rate limits."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        self._most_bytes = int(service.ev.settings.server_body_mb * 1e6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope)
        if scope["type"] != "http" or has_own_access(path):
            await self._app(scope, receive, send)
            return
        try:
            headers = headers_of(scope)
            caller = scope["caller"] = await self._caller(scope, headers)
            cost = self._cost(path, headers)
            limits = await self._limits(caller, cost)
        except Problem as problem:
            if problem.status_code == 401:
                await self._service.strangers.count_refused(scope)
            elif problem.status_code == 429:
                await self._service.delays.hold(scope["caller"].tenant)
            raise
        if caller.role is not Role.ADMIN:
            charge = scope[IN_SCOPE] = Charge(self._service, caller.bucket, caller.tenant)
            if path != _BATCH:
                send = charge.counting(send)
        if (call := current_call()) is not None:
            call.tenant = caller.tenant
        if cost == _UNKNOWN_LENGTH_COST and "content-length" not in headers:
            receive = self._charged(caller, receive)
        if caller.key is None:
            await self._app(scope, receive, send)
        else:
            await self._watched(caller.key, limits, scope, receive, send)

    async def _watched(
        self, key: Key, limits: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Handle the request while the key stays valid. When it is revoked, an NDJSON response
        that has started ends with a problem document as last line; any other is cut off."""
        started: Message | None = None

        async def send_tracked(message: Message) -> None:
            nonlocal started
            started = started or message
            await send(message)

        scope["answer_headers"].update(limits)
        call = current_call()
        assert call is not None
        call.key_id = key.id
        try:
            await self._app(scope, receive, send_tracked)
        except asyncio.CancelledError:
            lines = started and Headers(raw=started["headers"]).get("content-type") == LINES
            if not call.revoked or (started and not lines):
                raise
            call.forgive()
            problem = _unauthorized("the API key was revoked or has expired")
            if lines:
                line = problem.encoded(scope["request_id"]) + b"\n"
                await send({"type": "http.response.body", "body": line})
            else:
                await problem.response(scope["request_id"])(scope, receive, send)
        finally:
            call.key_id = None

    def _charged(self, caller: Caller, receive: Receive) -> Receive:
        """Receive a body of unknown length, which counts by its actual bytes."""
        paid = _UNKNOWN_LENGTH_COST * BYTES_PER_REQUEST

        async def receive_charged() -> Message:
            nonlocal paid
            message = await receive()
            paid -= len(message.get("body", b""))
            while paid < 0:
                await self._limits(caller, _UNKNOWN_LENGTH_COST)
                paid += _UNKNOWN_LENGTH_COST * BYTES_PER_REQUEST
            return message

        return receive_charged

    async def _limits(self, caller: Caller, cost: int) -> dict[str, str]:
        """The rate limit headers; raises a `Problem` if the limit is exceeded."""
        if caller.role is Role.ADMIN:
            return {}
        limiter = self._service.limiter
        if limiter.blocks:
            allowance = await self._service.run(limiter.allow, caller.bucket, cost)
        else:
            allowance = limiter.allow(caller.bucket, cost)
        LIMITER.add(1, "allowed" if allowance else "refused")
        limits = _limit_headers(limiter, allowance)
        if not allowance:
            raise _over_rate(limits, allowance)
        if not self._service.shares.take(caller.tenant, cost):
            REFUSED.add(1, "share")
            raise _over_share(limits)
        return limits

    def _cost(self, path: str, headers: Mapping[str, str]) -> int:
        """How many requests this one counts as: a long body takes longer to read, as a long response
        does (`charges`). A batch counts once, as its lines are read in the tenant's turns; a body
        that is too long is not read."""
        if path == _BATCH:
            return 1
        length = headers.get("content-length", "")
        if not length.isdecimal():
            return _UNKNOWN_LENGTH_COST if "transfer-encoding" in headers else 1
        size = int(length[:16])
        return 1 if size > self._most_bytes else 1 + size // BYTES_PER_REQUEST

    async def _caller(self, scope: Scope, headers: Mapping[str, str]) -> Caller:
        given: Caller | None = scope.get(GIVEN_CALLER)
        if given is not None:
            return given
        text = bearer_of(headers) or (session_of(scope) if is_page(path_of(scope)) else "")
        if text:
            key = await self._service.find_key(text)
            if key is not None:
                return Caller(key.tenant, key.agent, key.role, key)
            if await self._service.has_keys():
                raise _unauthorized("invalid API key: mistyped, revoked or expired")
        elif await self._service.has_keys():
            raise _unauthorized("missing API key: send Authorization: Bearer KEY")
        if not (self._service.ev.settings.open_without_keys or is_local(scope)):
            raise Problem(403, _NOT_LOCAL)
        return Caller(self._service.ev.tenant, "local", Role.ADMIN)


def has_own_access(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(PUSH_PATHS) or is_open_page(path)


def _unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="evervec"'})


def _limit_headers(limiter: Limiter, allowance: Allowance) -> dict[str, str]:
    window = math.ceil(limiter.burst / limiter.rate)
    until_full = (limiter.burst - allowance.remaining) / limiter.rate
    wait = math.ceil(until_full if allowance else allowance.retry_after)
    return {
        "RateLimit-Policy": f'"agent";q={limiter.burst};w={window}',
        "RateLimit": f'"agent";r={allowance.remaining};t={wait}',
    }


def _over_share(limits: dict[str, str]) -> Problem:
    return Problem(
        429,
        "the service is busy, and this tenant exceeds its share of requests: retry in 1 s",
        error="more than its share",
        headers={**limits, "Retry-After": "1"},
    )


def _over_rate(limits: dict[str, str], allowance: Allowance) -> Problem:
    seconds = math.ceil(allowance.retry_after)
    return Problem(
        429,
        f"this agent exceeds its rate limit: retry in {seconds} s",
        error="rate limit exceeded",
        headers={**limits, "Retry-After": str(seconds)},
    )
