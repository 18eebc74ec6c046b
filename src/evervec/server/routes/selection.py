"""Jobs that fit a filter: list them, and retry, cancel or reorder all of them at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pydantic import Field
from starlette.responses import Response

from evervec.model.job_filters import JobFilter
from evervec.model.jobs import Status
from evervec.records.drafts import HIGHEST_PRIORITY
from evervec.server.access import Caller
from evervec.server.answers import MOST_AT_ONCE, BigInt, Given, Items, Shown, answer
from evervec.server.idempotency import IdempotencyKey, once
from evervec.server.keys import Role
from evervec.server.problems import Problem, redacted
from evervec.server.router import Routes
from evervec.server.routes.jobs import JobOut
from evervec.server.view import ReaderView, View, WriterView

router = Routes("jobs")

_LONGEST = 1000
_FAR = 1e10


class JobFilterIn(Given):
    """Which jobs. All conditions have to be met; null: any."""

    status: Items[Status] = Field([], description="one or several; empty: any", max_length=4)
    kind: str | None = Field(None, min_length=1, max_length=_LONGEST)
    prefix: str | None = Field(
        None, min_length=1, max_length=_LONGEST, description="how the record's id begins"
    )
    error: str | None = Field(
        None, min_length=1, max_length=_LONGEST,
        description="a part of the error, in upper or lower case; for platform admins",
    )  # fmt: skip
    fingerprint: str | None = Field(
        None,
        min_length=1,
        max_length=_LONGEST,
        description="that of a group of failures, or several with commas between them",
    )
    worker: str | None = Field(
        None, min_length=1, max_length=_LONGEST,
        description="the worker that claimed it last; for platform admins",
    )  # fmt: skip
    older_than: float | None = Field(
        None, ge=0, lt=_FAR, allow_inf_nan=False,
        description="at least this many seconds in its status",
    )  # fmt: skip
    newer_than: float | None = Field(
        None, ge=0, lt=_FAR, allow_inf_nan=False,
        description="at most this many seconds in its status",
    )  # fmt: skip


class FindIn(JobFilterIn):
    """Which jobs to list."""

    before: BigInt | None = Field(None, description="only jobs with smaller numbers")
    limit: int = Field(100, ge=1, le=MOST_AT_ONCE)


class ChangeIn(JobFilterIn):
    """Which jobs to change."""

    dry_run: bool = Field(False, description="only count them")


class ReorderIn(ChangeIn):
    """Which jobs to reorder, and how."""

    priority: int = Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY, examples=[10])


class FoundOut(Shown):
    """Jobs, the newest first."""

    jobs: list[JobOut]


class ChangedOut(Shown):
    """Number of jobs that were changed, or would be."""

    count: int


def filter_for(caller: Caller, **conditions: Any) -> JobFilter:
    """A filter that the caller may use. Errors and workers are hidden from tenants, and a filter
    by them would tell what they are."""
    hidden = [name for name in ("error", "worker") if conditions.get(name) is not None]
    if hidden and caller.role is not Role.ADMIN:
        raise Problem(403, f"a filter by {hidden[0]} needs a platform admin's key")
    return JobFilter(**conditions)


def _filter(view: View, body: JobFilterIn) -> JobFilter:
    return filter_for(view.caller, **{n: getattr(body, n) for n in JobFilterIn.model_fields})


@router.on("POST /v1/jobs/find", "List the jobs that fit a filter", FoundOut, 415)
async def find_jobs(view: ReaderView, body: FindIn) -> Response:
    """The newest first. `before`: the number of the last job of the previous page. A page searches
    at most 10,000 jobs of each status."""
    found = await view.run(
        view.queue.jobs_where, _filter(view, body), before=body.before, limit=body.limit
    )
    return await view.listed(FoundOut, "jobs", found, partial(redacted, view.caller))


@router.on("POST /v1/jobs/retry", "Retry the failed jobs that fit a filter", ChangedOut, 409, 415)
async def retry_jobs(
    view: WriterView, body: ChangeIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """At most 10,000 in one request."""
    wanted = _filter(view, body)
    return await _changed(
        view, body, idempotency_key, "jobs.retry",
        lambda: view.queue.retry_where(wanted, dry_run=body.dry_run),
    )  # fmt: skip


@router.on(
    "POST /v1/jobs/cancel", "Remove the pending and failed jobs that fit a filter", ChangedOut, 409,
    415,
)  # fmt: skip
async def cancel_jobs(
    view: WriterView, body: ChangeIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """At most 10,000 in one request. Their history is kept."""
    wanted = _filter(view, body)
    return await _changed(
        view, body, idempotency_key, "jobs.cancel",
        lambda: view.queue.cancel_where(wanted, dry_run=body.dry_run),
    )  # fmt: skip


@router.on(
    "POST /v1/jobs/priority", "Change the priority of the pending jobs that fit a filter",
    ChangedOut, 409, 415,
)  # fmt: skip
async def reorder_jobs(
    view: WriterView, body: ReorderIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """At most 10,000 in one request."""
    wanted = _filter(view, body)
    return await _changed(
        view, body, idempotency_key, "jobs.priority",
        lambda: view.queue.set_priority_where(wanted, body.priority, dry_run=body.dry_run),
    )  # fmt: skip


async def _changed(
    view: View, body: ChangeIn, key: str | None, action: str, do: Callable[[], int]
) -> Response:
    if body.dry_run:
        return answer(ChangedOut, {"count": await view.run(do)})
    which = json.dumps(body.model_dump(mode="json", exclude_defaults=True))

    async def change() -> Response:
        async with view.audited(action, which) as entry:
            count = await view.run(do)
            entry.changed = count > 0
        return answer(ChangedOut, {"count": count})

    return await once(view, key, change)
