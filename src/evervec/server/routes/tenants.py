"""What tenants may have and use: the tenant looks, a platform admin sets."""

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
    summary="What the tenant has and may have",
    responses={200: {"model": UsageOut}, **documented()},
)
async def usage(view: Reading) -> Response:
    """Records, bytes and chunks that are there, tokens and money of today, and the bounds."""
    used = await view.run(view.ev.usage)
    return answer(UsageOut, used, headers=quota_headers(used))


@router.get(
    "/tenants/{tenant}/limits",
    summary="What a tenant has and may have",
    responses={200: {"model": UsageOut}, **documented()},
)
async def limits(view: Running, tenant: Tenant) -> Response:
    """For platform admins."""
    return answer(UsageOut, await view.run(view.service.of(tenant).usage))


@router.put(
    "/tenants/{tenant}/limits",
    summary="Set what a tenant may have",
    responses={200: {"model": UsageOut}, **documented(415)},
)
async def set_limits(view: Running, tenant: Tenant, body: LimitsIn) -> Response:
    """For platform admins. Other processes of the store know it within a second. What is there
    stays, also where it is more than that."""
    return answer(UsageOut, await view.run(_set, view, tenant, Limits(**body.model_dump())))


def _set(view: View, tenant: str, limits: Limits) -> Usage:
    ev = view.service.of(tenant)
    ev.set_limits(limits)
    return ev.usage()


def quota_headers(used: Usage) -> dict[str, str]:
    """What is left of each bound, in the way of the RateLimit header."""
    told = [
        f'"{name}";q={bound:g};r={max(0, bound - there):g}'
        if name == "money"
        else f'"{name}";q={bound};r={max(0, bound - there)}'
        for name, (there, bound) in used.bounds().items()
    ]
    return {"X-Quota": ", ".join(told)} if told else {}
