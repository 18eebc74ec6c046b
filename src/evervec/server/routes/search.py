"""Search, and waiting for changes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from evervec.model.explanations import Explanation, MatchedWord, Reranked
from evervec.model.jobs import Status, Ticket
from evervec.model.records import Hit, Hits
from evervec.queue.ticket_waiter import job_failed, timed_out
from evervec.server.answers import (
    LONGEST_WAIT,
    MOST_AT_ONCE,
    Data,
    Given,
    Items,
    Json,
    Shown,
    answer,
    answer_list,
    shows,
)
from evervec.server.problems import redacted
from evervec.server.requests import check_media_type
from evervec.server.router import CheckedRequest, Routes, described
from evervec.server.routes.jobs import JobOut
from evervec.server.routes.records import TicketIn
from evervec.server.view import TENANT, KindReaderView, View, asked_tenant, view_of

router = Routes("search")


class SearchIn(Given):
    """A search."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"query": "where is tea grown", "k": 3, "filter": {"topic": "plants"}}]
        }
    )

    query: str | None = Field(None, min_length=1)
    k: int = Field(10, ge=1, le=MOST_AT_ONCE)
    vector: Items[float] | None = Field(
        None, min_length=1, description="search by this vector, instead of the query's"
    )
    kind: str | Items[str] | None = Field(None, min_length=1, description="one or several")
    mode: Literal["hybrid", "semantic", "text"] = "hybrid"
    filter: Json | None = Field(None, examples=[{"topic": "plants", "year": {"gte": 2020}}])
    after: TicketIn | None = Field(None, description="search only when this change is in the index")
    wait: float = Field(5.0, ge=0, le=LONGEST_WAIT, description="seconds to wait for `after`")
    explain: bool = Field(False, description="say how each relevance was calculated")
    min_similarity: float | None = Field(None, description="omit hits with a lower cosine")
    min_relevance: float | None = Field(None, description="omit hits with a lower relevance")
    offset: int = Field(0, ge=0, le=MOST_AT_ONCE, description="skip this many hits")
    group_by: str | None = Field(
        None, min_length=1, description="a metadata field: `k` hits for each of its values"
    )
    groups: int = Field(10, ge=1, le=MOST_AT_ONCE, description="at most this many values")
    diversity: float | None = Field(
        None, ge=0, le=1, description="how much hits should differ from each other"
    )
    fields: Items[Literal["title", "text", "metadata", "data"]] | None = Field(
        None, description="the parts of a hit to return; all if not given"
    )
    rerank: bool | None = Field(
        None,
        description="whether the service's reranker orders the hits; by default, if it has one",
    )
    version: str | None = Field(
        None, min_length=1, description="search this embedding version; default: the serving ones"
    )


class SimilarIn(Given):
    """A record to which others are similar."""

    kind: str = Field(min_length=1)
    id: str = Field(min_length=1)
    k: int = Field(10, ge=1, le=MOST_AT_ONCE)
    filter: Json | None = None
    min_similarity: float | None = Field(None, description="omit hits with a lower cosine")
    explain: bool = Field(False, description="say how each relevance was calculated")


@shows(MatchedWord)
class MatchedWordOut(Shown):
    """A word of the query in a hit's text."""


@shows(Reranked)
class RerankedOut(Shown):
    """What a reranker said of a hit, and what the search said before."""


@shows(Explanation)
class ExplanationOut(Shown):
    """How the relevance of a hit was calculated."""


@shows(Hit, "row")
class HitOut(Shown):
    """A search result."""

    data: Data = Field(
        None, description="the object that the record was made of; null if it was made of a text"
    )


class HitsOut(Shown):
    """Search results, best first, and how they were found."""

    hits: list[HitOut]
    via: str
    version: str | None
    reranked: bool = Field(False, description="whether a reranker ordered the hits")
    rerank_error: str | None = Field(None, description="why not, although it was asked to")


class WaitIn(Given):
    """A change to wait for."""

    ticket: TicketIn
    wait: float = Field(30.0, ge=0, le=LONGEST_WAIT)


@router.on(
    "POST /v1/search", "Search by meaning and by words", HitsOut, 409, 415,
    reads=SearchIn, parameters=[described("tenant", "query", TENANT)],
)  # fmt: skip
async def search(request: Request) -> Response:
    """`via` says how the hits were found: without vectors, only text search is used. With `after`,
    the result includes that change, or the response is 409 after `wait` seconds."""
    view = view_of(request, asked_tenant(request), by_kind=True)
    check_media_type(request)
    body = SearchIn.model_validate(await CheckedRequest(request.scope, request.receive).json())
    for kind in body.kind if isinstance(body.kind, list) else [body.kind]:
        view.check_kind(kind)
    asked = dict(body)
    after, wait = asked.pop("after"), asked.pop("wait")
    if after is not None:
        asked |= {"after": await _settled(view, after, wait), "wait": 0.0}
    return await view.run(_found, partial(view.ev.search, **asked))


@router.on("POST /v1/similar", "Find similar records", HitsOut, 415)
async def find_similar(view: KindReaderView, body: SimilarIn) -> Response:
    """The records of the same kind that are nearest to a record by their vectors."""
    view.check_kind(body.kind)
    return await view.run(_found, partial(view.ev.similar, **dict(body)))


def _found(search: Callable[[], Hits]) -> Response:
    hits = search()
    rest = {
        "via": hits.via, "version": hits.version, "reranked": hits.reranked,
        "rerank_error": hits.rerank_error,
    }  # fmt: skip
    return answer_list(HitsOut, "hits", hits, rest)


@router.on("POST /v1/wait", "Wait until a change is in the index", JobOut, 409, 415)
async def wait_for_change(view: KindReaderView, body: WaitIn) -> Response:
    """Returns the job when it is done; 409 if it failed, is not done in time, or is unknown."""
    ticket = await _settled(view, body.ticket, body.wait)
    job = await view.run(view.ev.wait, ticket, 0.0)
    return answer(JobOut, redacted(view.caller, job))


async def _settled(view: View, given: TicketIn, seconds: float) -> Ticket:
    view.check_kind(given.kind)
    ticket = Ticket(given.kind, given.id, given.job_id, given.seq)
    end = await view.service.settle(view.tenant, ticket, 0.0)
    if end is None and await view.run(view.ev.store.jobs.is_saved, view.tenant, ticket):
        end = await view.service.settle(view.tenant, ticket, seconds)
    if end is None:  # unknown tickets fail at once, without a wait
        advice = "try again later, and check that a worker is running"
        raise await view.run(timed_out, view.ev.store, view.tenant, ticket, seconds, advice)
    if end is Status.FAILED:
        job = await view.run(view.ev.store.jobs.serving_job, view.tenant, ticket.kind, ticket.id)
        if job is not None:
            job = redacted(view.caller, job)
        raise job_failed(ticket, job, "POST /v1/jobs/{}/retry")
    return ticket
