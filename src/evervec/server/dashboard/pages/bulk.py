"""Actions on many jobs: the selected ones, or all that match a filter. A page says first how many
that would be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query

from evervec.model.bounds import BIGGEST
from evervec.model.job_filters import MOST_CHANGED
from evervec.model.jobs import Job
from evervec.records.drafts import HIGHEST_PRIORITY
from evervec.server.dashboard.filter_bar import Line
from evervec.server.dashboard.job_actions import VERBS, Verb, chosen, do_each
from evervec.server.dashboard.job_filter import filter_of
from evervec.server.dashboard.page_routes import Done, Form, Pages
from evervec.server.dashboard.pages.jobs import HIDDEN, PAGE, read_line
from evervec.server.dashboard.paths import link, local_address
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import count, spoken_list
from evervec.server.problems import Problem, redacted
from evervec.server.view import View, WriterView

router = Pages()

_SAMPLE = 10
_AUDITED_IDS = 20

Ids = Annotated[list[Annotated[int, Query(ge=0, le=BIGGEST)]], Query(max_length=10 * PAGE)]


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to be done, and to which jobs."""

    verb: Verb
    ids: list[int]
    """the selected jobs; none: all that match the filter"""
    q: str
    priority: int

    def count(self, view: View) -> int:
        """How many jobs it would change."""
        if self.ids:
            return sum(job.status in self.verb.fits for job in chosen(view.queue, self.ids))
        filter = filter_of(_checked(view, self.q))
        return self.verb.all(view.queue, filter, self.priority, True)

    def sample(self, view: View) -> list[Job]:
        """Some of the jobs that it would change."""
        if self.ids:
            found = chosen(view.queue, self.ids)
            return [job for job in found if job.status in self.verb.fits][:_SAMPLE]
        wanted = filter_of(_checked(view, self.q)).limited_to(*self.verb.fits)
        return view.queue.jobs_where(wanted, limit=_SAMPLE) if wanted else []

    def do(self, view: View) -> int:
        if self.ids:
            return do_each(view.queue, self.verb, self.ids, self.priority)
        filter = filter_of(_checked(view, self.q))
        return self.verb.all(view.queue, filter, self.priority, False)

    @property
    def target(self) -> str:
        """Which jobs, for the audit log."""
        to = f" to {self.priority}" if self.verb.name == "priority" else ""
        if not self.ids:
            return f"all that match {self.q!r}{to}" if self.q else f"all{to}"
        named = ", ".join(map(str, self.ids[:_AUDITED_IDS]))
        return f"selected: {named}{', …' if len(self.ids) > _AUDITED_IDS else ''}{to}"


def _checked(view: View, q: str) -> Line:
    line = read_line(view, q)
    if line.errors:
        raise Problem(422, "; ".join(line.errors))
    return line


def _choice(do: str, of: str, ids: list[int], q: str, priority: int) -> Choice:
    if do not in VERBS:
        raise Problem(422, f"unknown action {do[:40]!r}: use {', '.join(VERBS)}")
    if of not in ("selected", "matching"):
        raise Problem(422, "choose the selected jobs, or all that match")
    if of == "selected" and not ids:
        raise Problem(422, "no job is selected: select some, or choose all that match")
    if not -HIGHEST_PRIORITY <= priority <= HIGHEST_PRIORITY:
        most = f"{HIGHEST_PRIORITY:,}"
        raise Problem(422, f"the priority must be from -{most} to {most}, not {priority}")
    return Choice(VERBS[do], ids if of == "selected" else [], q, priority)


@router.page("/ui/jobs/bulk", "bulk.html")
async def dry_run(
    view: WriterView,
    do: str = "retry",
    of: str = "",
    id: Ids = [],  # noqa: B006 - read by FastAPI
    q: str = "",
    priority: int = 0,
    back: str = "",
) -> Values:
    of = of or ("selected" if id else "matching")
    choice = _choice(do, of, id, q, priority)
    total = await view.run(choice.count, view)
    sample = await view.run(choice.sample, view) if total else []
    rows = [redacted(view.caller, job) for job in sample]
    tenant = view.request.query_params.get("tenant")
    listed = link(view.request.scope, "jobs", q=q, tenant=tenant)
    return {
        "choice": choice,
        "of": of,
        "total": total,
        "most": MOST_CHANGED,
        "table": Table("jobs", rows, HIDDEN),
        "back": local_address(view.request.scope, back) if back else listed,
        "highest": HIGHEST_PRIORITY,
    }


@router.action("/ui/jobs/bulk")
async def carry_out(view: WriterView, form: Form) -> Done:
    ids = [_number(each) for each in form.all("id")]
    choice = _choice(
        form.get("do"), form.get("of"), ids, form.get("q"), form.number("priority", "Priority", 0)
    )
    if choice.verb.needs_confirmation:
        form.confirm(choice.verb.name)
    async with view.audited(f"jobs.{choice.verb.name}", choice.target) as entry:
        changed = await view.run(choice.do, view)
        entry.target = f"{count(changed, 'job')}, {choice.target}"
        entry.changed = changed > 0
    if not changed:
        states = spoken_list(sorted(choice.verb.fits), "or")
        notice = f"No job was {choice.verb.done}: none of them is {states} any more."
        return Done(notice, form.get("back"), "warn")
    was = "was" if changed == 1 else "were"
    notice = f"{count(changed, 'job')} {was} {choice.verb.done}."
    if changed >= MOST_CHANGED:
        notice += " There may be more: repeat it for the rest."
    return Done(notice, form.get("back"))


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 18:
        raise Problem(422, f"{text[:40]!r} is not a job's number")
    return int(text)
