"""Search, and waiting for changes."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from evervec.facade import job_failed
from evervec.model.jobs import Status, Ticket
from evervec.server.access import ReadingKind, View
from evervec.server.answers import answer
from evervec.server.discretion import told
from evervec.server.problems import documented
from evervec.server.requests import CheckedRoute
from evervec.server.schemas.jobs import JobOut
from evervec.server.schemas.records import TicketIn, WaitIn
from evervec.server.schemas.search import HitsOut, SearchIn

router = APIRouter(prefix="/v1", tags=["search"], route_class=CheckedRoute)


@router.post(
    "/search",
    summary="Search by meaning and by words",
    responses={200: {"model": HitsOut}, **documented(409, 415)},
)
async def search(view: ReadingKind, body: SearchIn) -> Response:
    """`via` says how the hits were found: without vectors, only text search is used. With `after`,
    the result includes that change, or the response is 409 after `wait` seconds."""
    view.must_have(body.kind)
    if body.after is not None:
        await _settled(view, body.after, body.wait)
    hits = await view.run(
        view.ev.search, body.query, body.k, kind=body.kind, mode=body.mode, filter=body.filter
    )
    return answer(HitsOut, {"hits": list(hits), "via": hits.via, "version": hits.version})


@router.post(
    "/wait",
    summary="Wait until a change is in the index",
    responses={200: {"model": JobOut}, **documented(409, 415)},
)
async def wait(view: ReadingKind, body: WaitIn) -> Response:
    """Returns the job when it is done; 409 if it failed, is not done in time, or is unknown."""
    ticket = await _settled(view, body.ticket, body.wait)
    job = await view.run(view.ev.wait, ticket, 0.0)
    return answer(JobOut, told(view.caller, job))


async def _settled(view: View, given: TicketIn, seconds: float) -> Ticket:
    view.must_have(given.kind)
    ticket = Ticket(given.kind, given.id, given.job_id, given.seq)
    end = await view.service.settle(view.tenant, ticket, 0.0)
    if end is None and await view.run(view.ev.store.jobs.is_saved, view.tenant, ticket):
        end = await view.service.settle(view.tenant, ticket, seconds)
    if end is None:  # unknown tickets fail at once, without a wait
        advice = "try again later, and check that a worker is running"
        raise await view.run(view.ev.timed_out, ticket, seconds, advice)
    if end is Status.FAILED:
        job = await view.run(view.ev.store.jobs.serving_job, view.tenant, ticket.kind, ticket.id)
        if job is not None:
            job = told(view.caller, job)
        raise job_failed(ticket, job, "POST /v1/jobs/{}/retry")
    return ticket
