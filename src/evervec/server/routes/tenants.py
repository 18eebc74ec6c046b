"""Usage and limits of tenants: a tenant reads its own, a platform admin sets them."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Path
from starlette.responses import Response

from evervec.model.reports import Limits, Usage
from evervec.records.drafts import check_name
from evervec.server.access import Reading, Running, View
from evervec.server.answers import answer
from evervec.server.problems import documented
from evervec.server.requests import CheckedRoute
from evervec.server.schemas.tenants import LimitsIn, UsageOut

router = APIRouter(prefix="/v1", tags=["tenants"], route_class=CheckedRoute)


async def _tenant(tenant: Annotated[str, Path(min_length=1)]) -> str:
    return check_name("tenant", unquote(tenant))


Tenant = Annotated[str, Depends(_tenant)]


@router.get(
    "/usage",
    summary="Get usage and limits of the tenant",
    responses={200: {"model": UsageOut}, **documented()},
)
async def usage(view: Reading) -> Response:
    """Current records, bytes and chunks, today's tokens and money, and the limits."""
    used = await view.run(view.ev.usage)
    return answer(UsageOut, used, headers=quota_headers(used))


@router.get(
    "/tenants/{tenant}/limits",
    summary="Get usage and limits of a tenant",
    responses={200: {"model": UsageOut}, **documented()},
)
async def limits(view: Running, tenant: Tenant) -> Response:
    """For platform admins."""
    return answer(UsageOut, await view.run(view.service.of(tenant).usage))


@router.put(
    "/tenants/{tenant}/limits",
    summary="Set the limits of a tenant",
    responses={200: {"model": UsageOut}, **documented(415)},
)
async def set_limits(view: Running, tenant: Tenant, body: LimitsIn) -> Response:
    """For platform admins. Other processes of the store apply it within a second. Existing data is
    kept, even beyond the limits."""
    return answer(UsageOut, await view.run(_set, view, tenant, Limits(**body.model_dump())))


def _set(view: View, tenant: str, limits: Limits) -> Usage:
    ev = view.service.of(tenant)
    ev.set_limits(limits)
    return ev.usage()


def quota_headers(used: Usage) -> dict[str, str]:
    """The remaining quotas, in the format of the RateLimit header."""
    told = [
        f'"{name}";q={bound:g};r={max(0, bound - there):g}'
        if name == "money"
        else f'"{name}";q={bound};r={max(0, bound - there)}'
        for name, (there, bound) in used.bounds().items()
    ]
    return {"X-Quota": ", ".join(told)} if told else {}
