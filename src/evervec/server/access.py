"""Authentication, authorization and rate limits.

A key has a tenant, an agent and a role; it gives access to the records and counts of its tenant
only. Platform admins see all tenants together, or one with `?tenant=`. Until the first key is
created, every client on the same machine is an admin.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.queue.queue import Queue
from evervec.records.drafts import check_name
from evervec.server.answers import LINES, answer_list
from evervec.server.audit import EVERY_TENANT, LONGEST_TARGET
from evervec.server.body_limits import PUSH_PATHS
from evervec.server.charges import BYTES_PER_REQUEST, IN_SCOPE, Charge
from evervec.server.dashboard.paths import is_open_page, is_page
from evervec.server.dashboard.session import session_of
from evervec.server.deadlines import current_call
from evervec.server.keys import Key, Role
from evervec.server.origin import is_local
from evervec.server.problems import KNOWN_ERRORS, Problem, problem_of
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
from evervec.stores.values import StoredEntry
from evervec.telemetry.counters import LIMITER, REFUSED

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evervec.server.service import Service

T = TypeVar("T")

_MOST_DELAYED, _DELAY_SECONDS = 500, 1.0
"""responses with 429 that are delayed at once, and for how many seconds"""
_BATCH = "/v1/records/batch"
_FEW = 20
"""values that are encoded in the event loop, if each is small"""
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
        self._delayed = 0

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
                problem = self._counted(problem, scope)
            if problem.status_code == 429:
                await self._delay()
            raise problem from None
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

    def _counted(self, unauthorized: Problem, scope: Scope) -> Problem:
        """The same problem, or another if the client had it too often."""
        try:
            self._service.strangers.count_refused(scope)
        except Problem as problem:
            return problem
        return unauthorized

    async def _delay(self) -> None:
        """Delay a 429 while the service is busy, to slow down clients that retry at once."""
        if self._service.shares.busy and self._delayed < _MOST_DELAYED:
            self._delayed += 1
            try:
                await asyncio.sleep(_DELAY_SECONDS)
            finally:
                self._delayed -= 1

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


@dataclass(slots=True)
class Audited:
    """The target of an action, to which its outcome can be added, such as a number of jobs."""

    target: str
    changed: bool = True
    """False: the action changed nothing. Repetitions are then counted, whatever their target."""
    outcome: str = "done"
    """another one if it was done without success"""


@dataclass(frozen=True, slots=True)
class View:
    """The part of the store that a request may use: one tenant, or for admins all tenants."""

    service: Service
    caller: Caller
    tenant: str
    everyone: bool
    """a platform admin's request without `?tenant=`"""
    request: Request

    @property
    def ev(self) -> Evervec:
        """The records of the tenant."""
        return self.service.of(self.tenant)

    @property
    def queue(self) -> Queue:
        """The jobs of the tenant, or of all."""
        return self.service.every_queue if self.everyone else self.ev.queue

    async def run(self, do: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a blocking call in a thread, in the turn of the caller's tenant."""
        return await self.service.run_for(self.caller.tenant, do, *args, **kwargs)

    async def listed(
        self,
        shape: type[BaseModel],
        field: str,
        found: Sequence[Any],
        each: Callable[[Any], Any] | None = None,
        **rest: Any,
    ) -> Response:
        """A response with a list; a long one is encoded in a thread. `each`: how a value is shown;
        `rest`: the other fields."""
        values = found if each is None else map(each, found)
        if len(found) <= _FEW:
            return answer_list(shape, field, values, rest)
        return await self.run(answer_list, shape, field, values, rest)

    def check_kind(self, kind: str | None) -> None:
        """Raise a `Problem` if the caller's token does not include the kind."""
        kinds = self.caller.kinds
        if kinds is not None and kind not in kinds:
            raise Problem(403, f"this token gives access to the kinds {', '.join(kinds)} only")

    @asynccontextmanager
    async def audited(self, action: str, target: str = "") -> AsyncIterator[Audited]:
        """Write an audit entry for the block, which may add to its target. Client errors (4xx)
        change nothing and leave no entry."""
        entry = Audited(target)
        try:
            yield entry
        except Exception as error:
            known = isinstance(error, KNOWN_ERRORS)
            status = problem_of(error, self.caller).status_code if known else 500
            if status < 500:
                raise
            with suppress(EvervecError):
                await self.audit(action, entry.target, f"failed ({status})")
            raise
        await self.audit(action, entry.target, entry.outcome, changed=entry.changed)

    async def audit(
        self, action: str, target: str, outcome: str = "done", *, changed: bool = True
    ) -> None:
        scope, key = self.request.scope, self.caller.key
        tenant = EVERY_TENANT if self.everyone else self.tenant
        entry = StoredEntry(
            self.service.ev.store.now(), key.id if key else None, self.caller.agent, tenant, action,
            target[:LONGEST_TARGET], outcome, scope["request_id"], scope["client_address"],
        )  # fmt: skip
        await self.service.audit.note(entry, changed=changed)


TENANT = "For platform admins: only this tenant."
TenantQuery = Annotated[str | None, Query(description=TENANT, min_length=1)]


def view_of(
    request: Request, tenant: str | None, role: Role = Role.READER, *, by_kind: bool = False
) -> View:
    """The view for the sender of a request; raises a `Problem` if the role is not sufficient.
    `by_kind`: the route itself checks the kinds of a token."""
    caller: Caller = request.scope["caller"]
    service: Service = request.app.state.service
    if caller.kinds is not None and not by_kind:
        raise Problem(
            403, "a token for some kinds may only add, get, list, search and delete their records"
        )
    if tenant is None:
        everyone = caller.role is Role.ADMIN
        view = View(service, caller, caller.tenant, everyone, request)
    else:
        check_name("tenant", tenant)
        if caller.role is not Role.ADMIN and tenant != caller.tenant:
            raise Problem(403, "this key belongs to another tenant: omit ?tenant=")
        view = View(service, caller, tenant, False, request)
    caller.require(role)
    return view


def _requires(role: Role, *, by_kind: bool = False) -> Callable[..., Awaitable[View]]:
    """A dependency that requires the role and returns a view. Routes check `role` before they
    read the body."""

    async def depend(request: Request, tenant: TenantQuery = None) -> View:
        return view_of(request, tenant, role, by_kind=by_kind)

    depend.role = role  # type: ignore[attr-defined]
    return depend


async def _requires_admin(request: Request) -> View:
    return view_of(request, None, Role.ADMIN)


_requires_admin.role = Role.ADMIN  # type: ignore[attr-defined]

ReaderView = Annotated[View, Depends(_requires(Role.READER))]
WriterView = Annotated[View, Depends(_requires(Role.WRITER))]
KindReaderView = Annotated[View, Depends(_requires(Role.READER, by_kind=True))]
KindWriterView = Annotated[View, Depends(_requires(Role.WRITER, by_kind=True))]
AdminView = Annotated[View, Depends(_requires_admin)]
