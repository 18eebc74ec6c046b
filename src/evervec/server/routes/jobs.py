"""Jobs: list, get, retry, cancel, and change of priority."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Path, Query
from pydantic import Field
from starlette.responses import Response

from evervec.model.basics import make_cursor
from evervec.model.jobs import Job, Status, TimelineEvent
from evervec.model.records import Content
from evervec.records.drafts import HIGHEST_PRIORITY
from evervec.server.answers import (
    MOST_AT_ONCE,
    Given,
    More,
    Shown,
    answer,
    read_cursor,
    shows,
)
from evervec.server.idempotency import IdempotencyKey, once
from evervec.server.problems import Problem, redacted
from evervec.server.router import Routes
from evervec.server.view import ReaderView, View, WriterView

router = Routes("jobs")


class PriorityIn(Given):
    """The changeable fields of a job."""

    priority: int = Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, examples=[10])


@shows(Job, "token")
class JobOut(Shown):
    """The sync state of one record."""


class JobsOut(Shown):
    """A page of jobs."""

    jobs: list[JobOut]
    cursor: More


class CancelledOut(Shown):
    """The id of the cancelled job."""

    cancelled: int


@shows(Content)
class ContentOut(Shown):
    """The record that a job embeds."""


class ContentsOut(Shown):
    """The content of a job."""

    content: ContentOut | None = Field(description="null: the record's vectors are to be removed")


@shows(TimelineEvent)
class TimelineEventOut(Shown):
    """One step on the way of a change to the index."""


class TimelineOut(Shown):
    """The way of a change to the index, in order."""

    events: list[TimelineEventOut]


JobId = Annotated[int, Path(ge=0, lt=1 << 63)]


@router.on("GET /v1/jobs", "List jobs", JobsOut)
async def list_jobs(
    view: ReaderView,
    status: Status | None = None,
    kind: Annotated[str | None, Query(min_length=1)] = None,
    id: Annotated[str | None, Query(min_length=1, description="id of the record")] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Response:
    """Ordered by job id. `cursor`: from the previous page."""
    place = read_cursor(cursor, int)
    after = place[0] if place else 0
    found = await view.run(
        view.queue.jobs, status=status, kind=kind, id=id, after=after, limit=limit
    )
    last = make_cursor(found[-1].job_id) if len(found) == limit else None
    return await view.listed(JobsOut, "jobs", found, partial(redacted, view.caller), cursor=last)


@router.on("GET /v1/jobs/{id}", "Get a job", JobOut, 404)
async def get_job(view: ReaderView, id: JobId) -> Response:
    return answer(JobOut, await _find(view, id))


@router.on("GET /v1/jobs/{id}/content", "Look at the content of a job", ContentsOut, 404)
async def get_job_content(view: WriterView, id: JobId) -> Response:
    """The record, or the boxed record that the job carries, which no reader sees yet. Nothing
    changes."""
    await _find(view, id)
    return await view.run(lambda: answer(ContentsOut, {"content": view.queue.peek(id)}))


@router.on("GET /v1/jobs/{id}/timeline", "Get the way of a job's latest change", TimelineOut, 404)
async def get_job_timeline(view: ReaderView, id: JobId) -> Response:
    """When it was saved, claimed, embedded and searchable, attempt by attempt."""
    await _find(view, id)
    found = await view.run(view.queue.timeline, id)
    return await view.listed(TimelineOut, "events", found, partial(redacted, view.caller))


@router.on("PATCH /v1/jobs/{id}", "Change a job's priority", JobOut, 404, 415)
async def set_job_priority(view: WriterView, id: JobId, body: PriorityIn) -> Response:
    """Jobs of a higher priority are claimed first."""
    await _find(view, id)
    async with view.audited("job.priority", f"{id} to {body.priority}"):
        await view.run(view.queue.set_priority, id, body.priority)
    return answer(JobOut, await _find(view, id))


@router.on("POST /v1/jobs/{id}/retry", "Retry a failed job", JobOut, 404, 409)
async def retry_job(
    view: WriterView, id: JobId, idempotency_key: IdempotencyKey = None
) -> Response:
    """Resets its attempts and its error."""

    async def do() -> Response:
        await _find(view, id)
        async with view.audited("job.retry", str(id)):
            await view.run(view.queue.retry, id)
        return answer(JobOut, await _find(view, id))

    return await once(view, idempotency_key, do)


@router.on("POST /v1/jobs/{id}/cancel", "Remove a pending or failed job", CancelledOut, 404, 409)
async def cancel_job(
    view: WriterView, id: JobId, idempotency_key: IdempotencyKey = None
) -> Response:
    """Its history is kept."""

    async def do() -> Response:
        await _find(view, id)
        async with view.audited("job.cancel", str(id)):
            await view.run(view.queue.cancel, id)
        return answer(CancelledOut, {"cancelled": id})

    return await once(view, idempotency_key, do)


async def _find(view: View, id: int) -> Job:
    found = await view.run(view.queue.get, id)
    if found is None:
        raise Problem(404, f"job {id} does not exist in this tenant")
    return redacted(view.caller, found)
