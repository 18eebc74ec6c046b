"""Usage and limits of tenants: a tenant reads its own, a platform admin sets them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path
from pydantic import Field
from starlette.responses import Response

from evervec.model.usage import MOST_WEIGHT, Limits, Usage
from evervec.records.drafts import check_name
from evervec.server.answers import BigInt, Given, Shown, answer, shows
from evervec.server.router import Routes
from evervec.server.view import AdminView, ReaderView, View

router = Routes("tenants")


class LimitsIn(Given):
    """The limits of one tenant; they replace all previous ones. Omitted or null: the service's
    setting for all tenants; 0: no limit."""

    weight: int | None = Field(
        None, ge=1, le=MOST_WEIGHT,
        description="share of the queue and of a busy service, relative to other tenants (1 by "
        "default)",
    )  # fmt: skip
    kinds: BigInt | None = None
    records: BigInt | None = None
    bytes: BigInt | None = Field(None, description="of titles, texts and metadata")
    chunks: BigInt | None = None
    tokens: BigInt | None = Field(None, description="per day (UTC)")
    money: float | None = Field(None, ge=0, le=1e15, description="per day (UTC)")


@shows(Limits)
class LimitsOut(Shown):
    """The limits of a tenant; 0: no limit."""


@shows(Usage)
class UsageOut(Shown):
    """A tenant's usage, including today's (UTC), and its limits."""


async def _tenant(tenant: Annotated[str, Path(min_length=1)]) -> str:
    return check_name("tenant", unquote(tenant))


Tenant = Annotated[str, Depends(_tenant)]


@router.on("GET /v1/usage", "Get usage and limits of the tenant", UsageOut)
async def get_usage(view: ReaderView) -> Response:
    """Current records, bytes and chunks, today's tokens and money, and the limits."""
    used = await view.run(view.ev.usage)
    return answer(UsageOut, used, headers=quota_headers(used))


@router.on("GET /v1/tenants/{tenant}/limits", "Get usage and limits of a tenant", UsageOut)
async def get_limits(view: AdminView, tenant: Tenant) -> Response:
    """For platform admins."""
    return answer(UsageOut, await view.run(view.service.of(tenant).usage))


@router.on("PUT /v1/tenants/{tenant}/limits", "Set the limits of a tenant", UsageOut, 415)
async def set_limits(view: AdminView, tenant: Tenant, body: LimitsIn) -> Response:
    """For platform admins. Other processes of the store apply it within a second. Existing data is
    kept, even beyond the limits."""
    await change_limits(view, tenant, Limits(**body.model_dump()))
    return answer(UsageOut, await view.run(view.service.of(tenant).usage))


async def change_limits(view: View, tenant: str, limits: Limits) -> None:
    """Set the limits of a tenant, with an audit entry that names them."""
    given = {name: value for name, value in asdict(limits).items() if value is not None}
    shown = ", ".join(f"{name} {value:g}" for name, value in given.items()) or "the defaults"
    async with view.audited("tenant.limits", f"{tenant}: {shown}"):
        await view.run(view.service.of(tenant).set_limits, limits)


def quota_headers(used: Usage) -> dict[str, str]:
    """The remaining quotas, in the format of the RateLimit header."""
    left = [
        f'"{name}";q={bound:g};r={max(0, bound - there):g}'
        if name == "money"
        else f'"{name}";q={bound};r={max(0, bound - there)}'
        for name, (there, bound) in used.bounds().items()
    ]
    return {"X-Quota": ", ".join(left)} if left else {}
