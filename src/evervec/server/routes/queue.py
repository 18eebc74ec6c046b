"""The queue as a whole: its numbers, and what is done to many jobs at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from evervec.server.access import Reading, View, Writing
from evervec.server.answers import answer
from evervec.server.discretion import told
from evervec.server.problems import documented
from evervec.server.repeats import IdempotencyKey, once
from evervec.server.requests import CheckedRoute
from evervec.server.schemas.queue import (
    PausedOut,
    PurgedOut,
    PurgeIn,
    RecoveredOut,
    RecoverIn,
    RetriedOut,
    RetryFailedIn,
    StatsOut,
)

router = APIRouter(prefix="/v1/queue", tags=["queue"], route_class=CheckedRoute)


@router.get(
    "/stats",
    summary="What waits, runs, failed and is done",
    responses={200: {"model": StatsOut}, **documented()},
)
async def stats(view: Reading) -> Response:
    """Of the tenant; a platform admin sees all tenants together, or one with `?tenant=`."""
    found = await view.run(view.queue.stats)
    if not view.everyone:
        # calls are made for all tenants: a tenant sees no more than it could have
        found = replace(found, in_flight=min(found.in_flight, found.processing))
    return answer(StatsOut, told(view.caller, found))


@router.post(
    "/retry-failed",
    summary="Let all failed jobs start anew",
    responses={200: {"model": RetriedOut}, **documented(415)},
)
async def retry_failed(
    request: Request,
    view: Writing,
    body: RetryFailedIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    most = body.max_retries if body else None

    async def do() -> Response:
        async with view.noted("queue.retry-failed"):
            count = await view.run(view.queue.retry_failed, most)
        return answer(RetriedOut, {"retried": count})

    return await once(request, view, idempotency_key, do)


@router.post(
    "/recover-stuck",
    summary="Take back jobs whose worker died",
    responses={200: {"model": RecoveredOut}, **documented(415)},
)
async def recover_stuck(view: Writing, body: RecoverIn | None = None) -> Response:
    """Those whose lease ran out. Workers do this by themselves."""
    threshold = body.threshold if body else None
    async with view.noted("queue.recover-stuck"):
        count = await view.run(view.queue.recover_stuck, threshold, own=True)
    return answer(RecoveredOut, {"recovered": count})


@router.post(
    "/purge",
    summary="Drop settled jobs",
    responses={200: {"model": PurgedOut}, **documented(415)},
)
async def purge(
    request: Request, view: Writing, body: PurgeIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Records and vectors stay."""
    age = timedelta(seconds=body.older_than)

    async def do() -> Response:
        async with view.noted("queue.purge", f"{body.status}, older than {body.older_than:g} s"):
            if body.status == "done":
                count = await view.run(view.queue.purge_done, age)
            else:
                count = await view.run(view.queue.purge_dead, age, boxed=body.boxed)
        return answer(PurgedOut, {"purged": count})

    return await once(request, view, idempotency_key, do)


@router.post(
    "/pause",
    summary="Let no worker claim more",
    responses={200: {"model": PausedOut}, **documented()},
)
async def pause(view: Writing) -> Response:
    """Of the tenant's jobs; for a platform admin of all tenants', or of one with `?tenant=`. What
    is claimed is finished."""
    async with view.noted("queue.pause"):
        return await view.run(_set_paused, view, True)


@router.post(
    "/resume",
    summary="Let workers go on",
    responses={200: {"model": PausedOut}, **documented()},
)
async def resume(view: Writing) -> Response:
    """Ends a pause of the same scope. While all tenants are paused, one that resumes still is."""
    async with view.noted("queue.resume"):
        return await view.run(_set_paused, view, False)


def _set_paused(view: View, paused: bool) -> Response:
    change = view.queue.pause if paused else view.queue.resume
    change(own=True)
    tenant = None if view.everyone else view.tenant
    return answer(PausedOut, {"paused": view.ev.store.paused(tenant)})
