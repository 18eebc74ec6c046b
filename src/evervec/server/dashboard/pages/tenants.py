"""Tenants: what each has and uses, its limits, and its pause. For platform admins."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Any

from fastapi import Depends, Query

from evervec.model.usage import Limits, TenantState
from evervec.records.drafts import check_given, check_name
from evervec.server.dashboard.page_routes import Form, Pages
from evervec.server.dashboard.paths import link, name_of
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.problems import Problem
from evervec.server.routes.tenants import change_limits
from evervec.server.view import AdminView, View

router = Pages()

_AT_ONCE = 50
_NAMES = tuple(field.name for field in fields(Limits))
MEANINGS = {
    "weight": "share of the queue, relative to other tenants; 1 by default",
    "kinds": "different kinds of records",
    "records": "that are not deleted",
    "bytes": "of titles, texts and metadata",
    "chunks": "in the serving versions",
    "tokens": "a day (UTC)",
    "money": "a day (UTC)",
}


@router.page("/ui/tenants", "tenants.html")
async def tenants(
    view: AdminView,
    q: Annotated[str, Query(max_length=300)] = "",
    first: Annotated[str, Query(max_length=300)] = "",
) -> Values:
    """Tenants in order of their names, from `first` on; `q`: those whose names begin so."""
    check_given(q=q or None, first=first or None)
    found = await view.run(view.service.ev.store.tenants.page, max(q, first), _AT_ONCE + 1)
    found = [each for each in found if each.usage.tenant.startswith(q)]  # they are neighbours
    more = None
    if len(found) > _AT_ONCE:
        more = link(view.request.scope, "tenants", q=q, first=found.pop().usage.tenant)
    rows = Table("tenants", [_row(each) for each in found], more=more)
    return {"q": q, "first": first, "tenants": found, "rows": rows}


async def _tenant(tenant: str) -> str:
    return check_name("tenant", name_of(tenant))


Tenant = Annotated[str, Depends(_tenant)]


@router.page("/ui/tenants/{tenant}", "tenant.html")
async def tenant(view: AdminView, tenant: Tenant) -> Values:
    (found,) = await view.run(_states, view, tenant)
    return {"state": found, "names": _NAMES, "meanings": MEANINGS}


def _states(view: View, tenant: str) -> list[TenantState]:
    """The tenant, even if nothing is known of it yet: limits may be set before its first record."""
    store = view.service.ev.store
    for found in store.tenants.page(tenant, 1):
        if found.usage.tenant == tenant:
            return [found]
    return [TenantState(store.tenants.usage(tenant), Limits(), paused=False)]


@router.action("/ui/tenants/{tenant}/limits")
async def set_limits(view: AdminView, tenant: Tenant, form: Form) -> str:
    await change_limits(view, tenant, Limits(**{name: _limit(form, name) for name in _NAMES}))
    return f"The limits of {tenant} are saved."


@router.action("/ui/tenants/{tenant}/pause")
async def pause(view: AdminView, tenant: Tenant) -> str:
    async with view.audited("queue.pause", tenant):
        await view.run(view.service.of(tenant).queue.pause, own=True)
    return f"{tenant} is paused: its changes are saved, and wait."


@router.action("/ui/tenants/{tenant}/resume")
async def resume(view: AdminView, tenant: Tenant) -> str:
    async with view.audited("queue.resume", tenant):
        await view.run(view.service.of(tenant).queue.resume, own=True)
    return f"{tenant} is resumed."


def _limit(form: Form, name: str) -> Any:
    text = form.get(name).replace(",", "")
    if not text:
        return None
    try:
        return float(text) if name == "money" else int(text)
    except ValueError:
        raise Problem(422, f"{name}: must be a number, or empty for the default") from None


def _row(tenant: TenantState) -> dict[str, object]:
    """A tenant as a row of a download."""
    used = asdict(tenant.usage)
    limits = used.pop("limits")
    return {
        **used,
        **{f"limit_{name}": value for name, value in limits.items()},
        "paused": tenant.paused,
    }
