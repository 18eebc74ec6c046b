"""What happened in a store over time, and what is wrong with it."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from evervec.model.failures import FailureGroup
from evervec.model.history import HistoryPoint
from evervec.model.reports import Sentence, WorkerState
from evervec.server.answers import MOST_AT_ONCE, Given, Shown, answer, shows
from evervec.server.keys import Role
from evervec.server.problems import redacted
from evervec.server.router import Routes
from evervec.server.view import AdminView, ReaderView, WriterView

router = Routes("observation")

_FAR = 1e10


@shows(Sentence)
class SentenceOut(Shown):
    """One thing that is to be known about the store."""


class SummaryOut(Shown):
    """The state in sentences, the most important first."""

    sentences: list[SentenceOut]


@router.on("GET /v1/summary", "Get the state in sentences", SummaryOut)
async def get_summary(view: ReaderView) -> Response:
    """What does not work and since when, what failed, what waits, what is under way. Of the tenant;
    for a platform admin of all tenants, or of one with `?tenant=`."""
    discreet = view.caller.role is not Role.ADMIN
    found = await view.run(view.ev.summary, all_tenants=view.everyone, discreet=discreet)
    return answer(SummaryOut, {"sentences": found})


@shows(HistoryPoint)
class HistoryPointOut(Shown):
    """What happened in one stretch of time."""


class HistoryOut(Shown):
    """Points at equal distances, the earliest first."""

    points: list[HistoryPointOut]


@router.on("GET /v1/history", "Get what happened over time", HistoryOut)
async def get_store_history(
    view: ReaderView,
    since: Annotated[
        float | None,
        Query(ge=0, lt=_FAR, allow_inf_nan=False, description="how many seconds ago it begins; 3600 by default"),
    ] = None,
    step: Annotated[
        float | None,
        Query(ge=60, lt=_FAR, allow_inf_nan=False, description="seconds from point to point: whole minutes"),
    ] = None,
    kind: Annotated[str | None, Query(min_length=1)] = None,
) -> Response:  # fmt: skip
    """Of the tenant; for a platform admin of all tenants, or of one with `?tenant=`. Minutes are
    kept for three hours, ten minutes for two days, hours for three months."""
    found = await view.run(view.ev.history, since, step, kind, all_tenants=view.everyone)
    return await view.listed(HistoryOut, "points", found)


@shows(FailureGroup)
class FailureGroupOut(Shown):
    """Failures of one kind and model whose messages are alike."""


class FailuresOut(Shown):
    """Groups of failures, the latest first."""

    failures: list[FailureGroupOut]


class DismissedOut(Shown):
    """Number of dismissed groups."""

    dismissed: int


Fingerprint = Annotated[
    str, Path(pattern="^[0-9a-f]{16}$", description="that of a group of failures")
]


@router.on("GET /v1/failures", "List failures in groups", FailuresOut)
async def list_failures(
    view: ReaderView,
    kind: Annotated[str | None, Query(min_length=1)] = None,
    dismissed: Annotated[
        bool, Query(description="also groups that were dismissed and have not failed since")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 50,
) -> Response:
    """Failures that are alike: of one kind and model, with messages that differ only in numbers,
    ids, quoted texts and paths. The latest come first."""
    found = await view.run(
        view.ev.failures, limit, kind, dismissed=dismissed, all_tenants=view.everyone
    )
    return await view.listed(FailuresOut, "failures", found, partial(redacted, view.caller))


@router.on("POST /v1/failures/{fingerprint}/dismiss", "Dismiss a group of failures", DismissedOut)
async def dismiss_failures(view: WriterView, fingerprint: Fingerprint) -> Response:
    """It is hidden until it fails again; its dead letters stay. 0: there is no such group."""
    async with view.audited("failures.dismiss", fingerprint) as entry:
        count = await view.run(view.ev.dismiss_failures, fingerprint, all_tenants=view.everyone)
        entry.changed = count > 0
    return answer(DismissedOut, {"dismissed": count})


@shows(WorkerState)
class WorkerOut(Shown):
    """A worker as it last reported."""


class WorkersOut(Shown):
    """Workers that were seen in the last hour."""

    workers: list[WorkerOut]


class WorkerIn(Given):
    """Which worker."""

    worker: str = Field(min_length=1, description="its name, as in the list")


@router.on("GET /v1/workers", "List workers", WorkersOut)
async def list_workers(view: AdminView) -> Response:
    """Who and where, how many jobs each holds and has done. For platform admins."""
    return await view.listed(WorkersOut, "workers", await view.run(view.ev.workers))


@router.on("POST /v1/workers/pause", "Pause one worker", WorkersOut, 415)
async def pause_worker(view: AdminView, body: WorkerIn) -> Response:
    """It finishes what it has and claims nothing, until it is resumed or ends. For platform
    admins."""
    async with view.audited("worker.pause", body.worker):
        await view.run(view.ev.pause_worker, body.worker)
    return await view.listed(WorkersOut, "workers", await view.run(view.ev.workers))


@router.on("POST /v1/workers/resume", "Resume one worker", WorkersOut, 415)
async def resume_worker(view: AdminView, body: WorkerIn) -> Response:
    """For platform admins."""
    async with view.audited("worker.resume", body.worker):
        await view.run(view.ev.resume_worker, body.worker)
    return await view.listed(WorkersOut, "workers", await view.run(view.ev.workers))
