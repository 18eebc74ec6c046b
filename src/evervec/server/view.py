"""The part of the store that a request may use, and what a route requires of its sender."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Depends, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.queue.queue import Queue
from evervec.records.drafts import check_name
from evervec.server.access import Caller
from evervec.server.answers import answer_list
from evervec.server.audit import EVERY_TENANT, LONGEST_TARGET
from evervec.server.keys import Role
from evervec.server.problems import KNOWN_ERRORS, Problem, problem_of
from evervec.stores.service_values import StoredEntry

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evervec.server.service import Service

T = TypeVar("T")

_FEW = 20
"""values that are encoded in the event loop, if each is small"""


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


def asked_tenant(request: Request) -> str | None:
    """`?tenant=` of a request whose route reads it itself."""
    return request.query_params.get("tenant") if request.scope["query_string"] else None


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
