"""The queue as a whole: statistics, and operations on many jobs."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

from pydantic import Field
from starlette.responses import Response

from evervec.model.reports import Gate, Stats
from evervec.model.usage import Spend
from evervec.server.answers import Given, Shown, answer, shows
from evervec.server.idempotency import IdempotencyKey, once
from evervec.server.problems import redacted
from evervec.server.router import Routes
from evervec.server.view import ReaderView, View, WriterView

router = Routes("queue")


@shows(Gate)
class GateOut(Shown):
    """Why the provider is paused."""


@shows(Spend)
class SpendOut(Shown):
    """Provider calls, tokens and cost of a day."""


@shows(Stats)
class StatsOut(Shown):
    """Statistics of the queue."""


class RetryFailedIn(Given):
    """Which failed jobs to retry."""

    max_retries: int | None = Field(
        None, ge=0, lt=1 << 31, description="only those with fewer attempts"
    )


class RetriedOut(Shown):
    """Number of retried jobs."""

    retried: int


class RecoverIn(Given):
    """Which jobs to recover."""

    threshold: float | None = Field(
        None, ge=0, lt=1e10, allow_inf_nan=False,
        description="also those claimed more than this many seconds ago",
    )  # fmt: skip


class RecoveredOut(Shown):
    """Number of recovered jobs."""

    recovered: int


class PurgeIn(Given):
    """Which done or failed jobs to purge."""

    status: Literal["done", "failed"]
    older_than: float = Field(
        7 * 86400.0, ge=0, lt=1e10, allow_inf_nan=False,
        description="minimum seconds since their end",
    )  # fmt: skip
    boxed: bool = Field(False, description="with failed: also those that hold a boxed record")


class PurgedOut(Shown):
    """Number of purged jobs."""

    purged: int


class PausedOut(Shown):
    """Whether the queue is paused."""

    paused: bool


@router.on("GET /v1/queue/stats", "Get statistics of the queue", StatsOut)
async def get_queue_stats(view: ReaderView) -> Response:
    """Jobs of the tenant by status; for a platform admin of all tenants, or of one with
    `?tenant=`."""
    found = await view.run(view.queue.stats)
    if not view.everyone:
        # calls are shared by all tenants: show a tenant no more than it can have
        found = replace(found, in_flight=min(found.in_flight, found.processing))
    return answer(StatsOut, redacted(view.caller, found))


@router.on("POST /v1/queue/retry-failed", "Retry all failed jobs", RetriedOut, 415)
async def retry_failed_jobs(
    view: WriterView,
    body: RetryFailedIn | None = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    most = body.max_retries if body else None

    async def do() -> Response:
        async with view.audited("queue.retry-failed") as entry:
            count = await view.run(view.queue.retry_failed, most)
            entry.changed = count > 0
        return answer(RetriedOut, {"retried": count})

    return await once(view, idempotency_key, do)


@router.on("POST /v1/queue/recover-stuck", "Recover jobs whose worker died", RecoveredOut, 415)
async def recover_stuck_jobs(view: WriterView, body: RecoverIn | None = None) -> Response:
    """Those whose lease expired. Workers do this automatically."""
    threshold = body.threshold if body else None
    async with view.audited("queue.recover-stuck") as entry:
        count = await view.run(view.queue.recover_stuck, threshold, own=True)
        entry.changed = count > 0
    return answer(RecoveredOut, {"recovered": count})


@router.on("POST /v1/queue/purge", "Purge done or failed jobs", PurgedOut, 415)
async def purge_jobs(
    view: WriterView, body: PurgeIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Records and vectors are kept."""
    age = timedelta(seconds=body.older_than)

    async def do() -> Response:
        which = f"{body.status}, older than {body.older_than:g} s"
        async with view.audited("queue.purge", which) as entry:
            if body.status == "done":
                count = await view.run(view.queue.purge_done, age)
            else:
                count = await view.run(view.queue.purge_dead, age, boxed=body.boxed)
            entry.changed = count > 0
        return answer(PurgedOut, {"purged": count})

    return await once(view, idempotency_key, do)


@router.on("POST /v1/queue/pause", "Stop workers from claiming jobs", PausedOut)
async def pause_queue(view: WriterView) -> Response:
    """Jobs of the tenant; for a platform admin of all tenants, or of one with `?tenant=`. Claimed
    jobs are finished."""
    async with view.audited("queue.pause"):
        return await view.run(_set_paused, view, True)


@router.on("POST /v1/queue/resume", "Let workers claim jobs again", PausedOut)
async def resume_queue(view: WriterView) -> Response:
    """Ends a pause of the same scope. While all tenants are paused, a tenant that resumes stays
    paused."""
    async with view.audited("queue.resume"):
        return await view.run(_set_paused, view, False)


def _set_paused(view: View, paused: bool) -> Response:
    change = view.queue.pause if paused else view.queue.resume
    change(own=True)
    tenant = None if view.everyone else view.tenant
    return answer(PausedOut, {"paused": view.ev.store.jobs.paused(tenant)})
