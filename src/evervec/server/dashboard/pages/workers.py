"""Workers: who works on the queue, and how to pause them."""

from __future__ import annotations

from evervec.embedding.provider import Provider
from evervec.maintenance.summary import ALIVE_SECONDS
from evervec.model.basics import as_datetime
from evervec.model.history import EVERY_TENANT
from evervec.model.phrases import shortened
from evervec.model.reports import Gate
from evervec.server.dashboard.filter_bar import compose
from evervec.server.dashboard.page_routes import Done, Form, Pages
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.session import Level
from evervec.server.dashboard.tables import Table
from evervec.server.dashboard.words import count
from evervec.server.problems import redacted
from evervec.server.view import AdminView, ReaderView, View, WriterView

router = Pages()

_LONGEST_ERROR = 140
"""so that those of two providers fit in one notice"""


@router.page("/ui/workers", "workers.html")
async def workers(view: ReaderView) -> Values:
    found = await view.run(view.ev.workers)
    queue = await view.run(_queue, view)
    gates = await view.run(_gates, view)
    now = as_datetime(view.ev.store.now())
    assert now is not None
    rows = [redacted(view.caller, each) for each in found]
    return {
        "queue": queue,
        "gates": [(name, redacted(view.caller, gate)) for name, gate in gates],
        "now": now,
        "capped": await view.run(view.ev.models.spending.capped),
        "providers": [provider.name for provider in _providers(view)],
        "table": Table("workers", rows),
        "alive": {
            each.worker for each in rows if (now - each.seen_at).total_seconds() < ALIVE_SECONDS
        },
        "jobs_of": {
            each.worker: compose({"status": "processing", "worker": each.worker}) for each in rows
        },
        "everyone": view.everyone,
    }


def _queue(view: View) -> Values:
    """How much waits, and whether it is paused; read without a count that grows with the queue."""
    jobs, tenant = view.ev.store.jobs, None if view.everyone else view.tenant
    paused = jobs.paused_tenants()
    return {
        "backlog": jobs.backlog(tenant),
        "paused": EVERY_TENANT in paused or tenant in paused,
        "everyone_paused": EVERY_TENANT in paused,
        "paused_tenants": sorted(paused - {EVERY_TENANT}) if view.everyone else [],
    }


def _gates(view: View) -> list[tuple[str, Gate]]:
    """The providers that are paused for all workers, by name."""
    found = ((provider.name, provider.gate()) for provider in _providers(view))
    return [(name, gate) for name, gate in found if gate is not None]


def _providers(view: View) -> list[Provider]:
    return [model.provider for model in view.ev.models]


@router.action("/ui/queue/pause")
async def pause_queue(view: WriterView) -> str:
    async with view.audited("queue.pause"):
        await view.run(view.queue.pause, own=True)
    return f"{_whose(view)} paused: no job is claimed; claimed jobs are finished."


@router.action("/ui/queue/resume")
async def resume_queue(view: WriterView) -> str:
    async with view.audited("queue.resume"):
        await view.run(view.queue.resume, own=True)
    if not view.everyone and (await view.run(_queue, view))["everyone_paused"]:
        return "This tenant's pause has ended, but all tenants are paused by a platform admin."
    return f"{_whose(view)} resumed."


def _whose(view: View) -> str:
    return "The queue is" if view.everyone else f"The queue of the tenant {view.tenant} is"


@router.action("/ui/workers/pause")
async def pause_worker(view: AdminView, form: Form) -> str:
    worker = form.need("worker", "The worker")
    async with view.audited("worker.pause", worker):
        await view.run(view.ev.pause_worker, worker)
    return f"{worker} is paused: it finishes what it holds and claims nothing more."


@router.action("/ui/workers/resume")
async def resume_worker(view: AdminView, form: Form) -> str:
    worker = form.need("worker", "The worker")
    async with view.audited("worker.resume", worker):
        await view.run(view.ev.resume_worker, worker)
    return f"{worker} claims jobs again."


@router.action("/ui/provider/probe")
async def probe(view: AdminView) -> Done:
    """Probe the providers that are paused, before their pause is over."""
    async with view.audited("provider.probe") as entry:
        answers = await view.run(_probe_all, view)
        away = sum(not answered for answered, _ in answers)
        if away:
            entry.outcome = f"failed: {away} of {count(len(answers), 'provider')} not available"
    if not answers:
        return Done("No provider is paused.")
    level: Level = "good" if not away else "bad" if away == len(answers) else "warn"
    return Done("\n".join(said for _, said in answers), level=level)


def _probe_all(view: View) -> list[tuple[bool, str]]:
    """Whether each paused provider answered, in words."""
    found = []
    for provider in _providers(view):
        if provider.gate() is None:
            continue
        error = provider.probe_now()
        said = (
            f"{provider.name} answered: embedding resumes."
            if error is None
            else f"{provider.name} is still not available: {shortened(str(error), _LONGEST_ERROR)}"
        )
        found.append((error is None, said))
    return found
