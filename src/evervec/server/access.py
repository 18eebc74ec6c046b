"""Who asks, whose records they may see, and how often they may ask.

A key names a tenant, an agent and a role; what it reads and counts is of its tenant alone.
Platform admins see all tenants together, or one with `?tenant=`. As long as no key was ever
made the service is its own machine's: everybody there is an admin of it.
"""

from __future__ import annotations

import ipaddress
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

from fastapi import Depends, Query
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request

from evervec.drafts import check_name
from evervec.facade import Evervec
from evervec.keys import Role
from evervec.limits.limiter import Allowance, Limiter
from evervec.queue import Queue
from evervec.server.problems import Problem
from evervec.server.requests import App, Message, Receive, Scope, Send
from evervec.telemetry import LIMITER

if TYPE_CHECKING:
    from collections.abc import Callable

    from evervec.server.service import Service

T = TypeVar("T")

OPEN_PATHS = frozenset({"/healthz", "/readyz", "/docs", "/openapi.json", "/favicon.ico"})
PUSH_PATHS = "/internal/"
"""these look at credentials of their own"""
_RANK = {Role.READER: 0, Role.WRITER: 1, Role.ADMIN: 2}
_NEEDED = {
    Role.WRITER: "this changes something: use a writer's key",
    Role.ADMIN: "this is for all tenants: use a platform admin's key",
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Whoever sent a request."""

    tenant: str
    agent: str
    role: Role

    @property
    def bucket(self) -> str:
        """What their requests are counted under."""
        return f"org:{self.tenant}:agent:{self.agent}"


class Access:
    """The layer that lets in whoever has a key, as often as they may."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # without the place where another application has mounted this one
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        if scope["type"] != "http" or has_own_access(path):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            caller = scope["caller"] = await self._caller(headers)
            if caller.role is Role.ADMIN:
                await self._app(scope, receive, send)
                return
            limiter = self._service.limiter
            allowance = await self._allowance(limiter, caller.bucket)
            LIMITER.add(1, "allowed" if allowance else "refused")
            limits = _limit_headers(limiter, allowance)
            if not allowance:
                raise _too_often(limits, allowance)
        except Problem as problem:
            await problem.response(scope["request_id"])(scope, receive, send)
            return

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(limits)
            await send(message)

        await self._app(scope, receive, sending)

    async def _caller(self, headers: Headers) -> Caller:
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and text:
            key = await self._service.find_key(text.strip())
            if key is not None:
                return Caller(key.tenant, key.agent, key.role)
            if await self._service.has_keys():
                raise _unauthorized("this key opens nothing: it is mistyped, revoked or expired")
        elif await self._service.has_keys():
            raise _unauthorized("a key is needed: send Authorization: Bearer KEY")
        _check_is_local(headers)
        return Caller(self._service.ev.tenant, "local", Role.ADMIN)

    async def _allowance(self, limiter: Limiter, bucket: str) -> Allowance:
        if limiter.blocks:
            return await self._service.run(limiter.allow, bucket)
        return limiter.allow(bucket)


def has_own_access(path: str) -> bool:
    """Whether no key is asked for there."""
    return path in OPEN_PATHS or path.startswith(PUSH_PATHS)


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


def _too_often(limits: dict[str, str], allowance: Allowance) -> Problem:
    seconds = math.ceil(allowance.retry_after)
    return Problem(
        429,
        f"this agent asks more often than it may: come again in {seconds} s",
        error="rate limit exceeded",
        headers={**limits, "Retry-After": str(seconds)},
    )


def _check_is_local(headers: Headers) -> None:
    """Without keys nothing but this machine may ask; a web page that a browser on it shows, or
    a name that was made to point here, is not this machine."""
    places = [f"//{headers.get('host', '')}", *headers.getlist("origin")]
    if not all(is_loopback(_host_of(place)) for place in places):
        raise Problem(403, "without keys only programs on this machine may ask: make a key first")


def _host_of(place: str) -> str:
    try:
        return urlsplit(place).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class View:
    """What of the store a request is about: one tenant's part, or for admins all."""

    service: Service
    caller: Caller
    tenant: str
    everyone: bool
    """a platform admin who named no tenant"""

    @property
    def ev(self) -> Evervec:
        """The records of the tenant."""
        return self.service.of(self.tenant)

    @property
    def queue(self) -> Queue:
        """The jobs of the tenant, or of all."""
        return self.service.every_queue if self.everyone else self.ev.queue

    async def run(self, do: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Do what blocks, in a thread, when it is the caller's tenant's turn."""
        return await self.service.run_for(self.caller.tenant, do, *args, **kwargs)

    def must_be(self, role: Role) -> None:
        if _RANK[self.caller.role] < _RANK[role]:
            raise Problem(403, f"a {self.caller.role}'s key may not do this; {_NEEDED[role]}")


TENANT = "Platform admins: of this tenant alone."
TenantQuery = Annotated[str | None, Query(description=TENANT, min_length=1)]


def view_of(request: Request, tenant: str | None, role: Role = Role.READER) -> View:
    """What the sender of a request may work on, if their role is enough."""
    caller: Caller = request.scope["caller"]
    service: Service = request.app.state.service
    if tenant is None:
        view = View(service, caller, caller.tenant, caller.role is Role.ADMIN)
    else:
        check_name("tenant", tenant)
        if caller.role is not Role.ADMIN and tenant != caller.tenant:
            raise Problem(403, "this key is of another tenant: leave ?tenant= out")
        view = View(service, caller, tenant, everyone=False)
    view.must_be(role)
    return view


async def _reading(request: Request, tenant: TenantQuery = None) -> View:
    return view_of(request, tenant)


async def _writing(request: Request, tenant: TenantQuery = None) -> View:
    return view_of(request, tenant, Role.WRITER)


async def _running(request: Request) -> View:
    return view_of(request, None, Role.ADMIN)


Reading = Annotated[View, Depends(_reading)]
Writing = Annotated[View, Depends(_writing)]
Running = Annotated[View, Depends(_running)]
