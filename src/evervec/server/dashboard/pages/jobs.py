"""Jobs: a list with one filter bar, and one job with its timeline."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import Path, Query

from evervec.errors import EvervecError, InvalidArgument
from evervec.model.jobs import Attempt, Job, Op, Status
from evervec.model.records import Content
from evervec.records.drafts import HIGHEST_PRIORITY
from evervec.server.dashboard.filter_bar import Line
from evervec.server.dashboard.job_actions import VERBS, fitting
from evervec.server.dashboard.job_filter import (
    filter_of,
    offered,
    qualifiers,
    suggestions,
    terms,
)
from evervec.server.dashboard.page_routes import Form, Pages, as_json
from evervec.server.dashboard.paths import link
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import spoken_list
from evervec.server.keys import Role
from evervec.server.problems import Problem, redacted
from evervec.server.view import ReaderView, View, WriterView

router = Pages()

PAGE = 50
HIDDEN = frozenset({"token", "record", "version"})
_MOST_KINDS = 30
_MOST_OFFERED = 10
_LONGEST_METADATA = 20_000
OPERATIONS = {
    Op.EMBED: "embed the record's text",
    Op.OPEN: "embed a boxed record, then make it visible",
    Op.LOAD: "load the row, then embed it",
    Op.DELETE: "remove the record's vectors from the index",
}

JobNumber = Annotated[int, Path(ge=0, lt=1 << 63)]
Before = Annotated[int | None, Query(ge=0, lt=1 << 63)]


def read_line(view: View, text: str) -> Line:
    return Line(text, qualifiers(is_admin=view.caller.role is Role.ADMIN))


@router.page("/ui/jobs", "jobs.html")
async def jobs(view: ReaderView, q: str = "", before: Before = None) -> Values:
    line = read_line(view, q)
    kinds = await view.run(_kinds, view)
    offers = offered(kinds, *await view.run(_offers, view))
    values: Values = {
        "line": line,
        "kinds": kinds,
        "statuses": list(Status),
        "qualifiers": qualifiers(is_admin=view.caller.role is Role.ADMIN),
        "suggestions": suggestions(line, offers),
        "offers": json.dumps(terms(offers), ensure_ascii=False),
        "before": before,
        "table": None,
    }
    if line.errors:
        return {**values, "problem": Problem(422, "; ".join(line.errors))}
    found = await view.run(view.queue.jobs_where, filter_of(line), before=before, limit=PAGE + 1)
    rows = [redacted(view.caller, job) for job in found[:PAGE]]
    more = None
    if len(found) > PAGE:
        tenant = view.request.query_params.get("tenant")
        last = rows[-1].job_id
        more = link(view.request.scope, "jobs", q=line.text, before=last, tenant=tenant)
    has_versions = (
        len({job.embedding_version for job in rows}) > 1
    )  # a change of model is under way
    fits = sorted({verb.name for job in rows for verb in fitting(job)}, key=list(VERBS).index)
    return {
        **values,
        "table": Table("jobs", rows, HIDDEN, more),
        "verbs": fits,
        "has_versions": has_versions,
    }


def _kinds(view: View) -> list[str]:
    """The kinds to suggest; the names of another tenant's are not shown."""
    if view.everyone:
        found = {each.kind for each in view.ev.store.versions.collections()}
    else:
        found = set(view.ev.store.versions.kinds(view.tenant))
    return sorted(found)[:_MOST_KINDS]


def _offers(view: View) -> tuple[list[str], list[str]]:
    """Groups of failures and workers to suggest; tenants do not see the names of workers."""
    groups = view.ev.failures(_MOST_OFFERED, all_tenants=view.everyone)
    fingerprints = list(dict.fromkeys(group.fingerprint for group in groups if group.open))
    if view.caller.role is not Role.ADMIN:
        return fingerprints, []
    return fingerprints, [each.worker for each in view.ev.workers()[:_MOST_OFFERED]]


@router.page("/ui/jobs/{id}", "job.html")
async def job(view: ReaderView, id: JobNumber) -> Values:
    found = await _find(view, id)
    timeline = await view.run(view.queue.timeline, id)
    history = await view.run(_history, view, found)
    attempts = [redacted(view.caller, attempt) for attempt in history]
    may_read = view.caller.role.rank >= Role.WRITER.rank
    content, unreadable = await view.run(_content, view, id) if may_read else (None, "")
    return {
        "job": redacted(view.caller, found),
        "operation": OPERATIONS[found.op],
        "timeline": [redacted(view.caller, event) for event in timeline],
        "attempts": attempts[::-1],
        "verbs": [verb.name for verb in fitting(found)],
        "highest": HIGHEST_PRIORITY,
        "content": content,
        "metadata": as_json(content.metadata, _LONGEST_METADATA) if content else "",
        "record_tenant": found.tenant if view.caller.role is Role.ADMIN else None,
        "unreadable": unreadable,
    }


def _missing(id: int) -> Problem:
    return Problem(404, f"Job {id} does not exist: it was cancelled or purged, or never existed.")


def _history(view: View, job: Job) -> list[Attempt]:
    return view.service.of(job.tenant).queue.history(job.kind, job.record_id)


def _content(view: View, id: int) -> tuple[Content | None, str]:
    """The content of a job, and why it cannot be shown."""
    try:
        content = view.queue.peek(id)
    except InvalidArgument as error:
        return None, str(error)
    except EvervecError:
        return None, "the content cannot be read at the moment"
    return content, "" if content else "the record was deleted: its vectors are to be removed"


@router.action("/ui/jobs/{id}/retry")
async def retry(view: WriterView, id: JobNumber) -> str:
    await _find(view, id)
    async with view.audited("job.retry", str(id)):
        await view.run(view.queue.retry, id)
    return f"Job {id} will be tried again."


@router.action("/ui/jobs/{id}/priority")
async def set_priority(view: WriterView, id: JobNumber, form: Form) -> str:
    priority = form.number("priority", "The priority")
    job = await _find(view, id)
    verb = VERBS["priority"]
    if verb not in fitting(job):
        states = spoken_list(sorted(verb.fits), "or")
        raise Problem(409, f"job {id} is {job.status}; only a {states} job can be {verb.done}")
    async with view.audited("job.priority", f"{id} to {priority}"):
        await view.run(view.queue.set_priority, id, priority)
    return f"Job {id} has the priority {priority} now."


async def _find(view: View, id: int) -> Job:
    found = await view.run(view.queue.get, id)
    if found is None:
        raise _missing(id)
    return found
