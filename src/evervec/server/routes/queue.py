"""The queue as a whole: statistics, and operations on many jobs."""

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
    summary="Get statistics of the queue",
    responses={200: {"model": StatsOut}, **documented()},
)
async def stats(view: Reading) -> Response:
    """Jobs of the tenant by status; for a platform admin of all tenants, or of one with
    `?tenant=`."""
    found = await view.run(view.queue.stats)
    if not view.everyone:
        # calls are shared by all tenants: show a tenant no more than it can have
        found = replace(found, in_flight=min(found.in_flight, found.processing))
    return answer(StatsOut, told(view.caller, found))


@router.post(
    "/retry-failed",
    summary="Retry all failed jobs",
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
    summary="Recover jobs whose worker died",
    responses={200: {"model": RecoveredOut}, **documented(415)},
)
async def recover_stuck(view: Writing, body: RecoverIn | None = None) -> Response:
    """Those whose lease expired. Workers do this automatically."""
    threshold = body.threshold if body else None
    async with view.noted("queue.recover-stuck"):
        count = await view.run(view.queue.recover_stuck, threshold, own=True)
    return answer(RecoveredOut, {"recovered": count})


@router.post(
    "/purge",
    summary="Purge done or failed jobs",
    responses={200: {"model": PurgedOut}, **documented(415)},
)
async def purge(
    request: Request, view: Writing, body: PurgeIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Records and vectors are kept."""
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
    summary="Stop workers from claiming jobs",
    responses={200: {"model": PausedOut}, **documented()},
)
async def pause(view: Writing) -> Response:
    """Jobs of the tenant; for a platform admin of all tenants, or of one with `?tenant=`. Claimed
    jobs are finished."""
    async with view.noted("queue.pause"):
        return await view.run(_set_paused, view, True)


@router.post(
    "/resume",
    summary="Let workers claim jobs again",
    responses={200: {"model": PausedOut}, **documented()},
)
async def resume(view: Writing) -> Response:
    """Ends a pause of the same scope. While all tenants are paused, a tenant that resumes stays
    paused."""
    async with view.noted("queue.resume"):
        return await view.run(_set_paused, view, False)


def _set_paused(view: View, paused: bool) -> Response:
    change = view.queue.pause if paused else view.queue.resume
    change(own=True)
    tenant = None if view.everyone else view.tenant
    return answer(PausedOut, {"paused": view.ev.store.jobs.paused(tenant)})
