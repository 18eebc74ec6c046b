"""Records: add, get, list, delete, and their attempts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, unquote

from fastapi import Depends, Header, Path, Query
from pydantic import ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.model.basics import make_cursor
from evervec.model.jobs import Attempt, Status, Ticket
from evervec.model.records import Record, Vectors
from evervec.records.drafts import HIGHEST_PRIORITY, LONGEST_ID, LONGEST_NAME, OPTIONS, check_name
from evervec.records.writer import Save
from evervec.server.answers import (
    MOST_AT_ONCE,
    BigInt,
    Data,
    Given,
    Items,
    Json,
    More,
    Shown,
    answer,
    answer_list,
    asked_seq,
    asked_wait,
    entity_tag,
    read_cursor,
    read_filter_json,
    shows,
)
from evervec.server.idempotency import IDEMPOTENCY_KEY, KEY_SHAPE, checked_name, derived_id, once
from evervec.server.keys import Role
from evervec.server.problems import Problem, redacted
from evervec.server.requests import (
    LARGE_BODY,
    check_media_type,
    check_value,
    check_values,
    headers_of,
)
from evervec.server.router import Routes, described
from evervec.server.routes.page import bounded_page
from evervec.server.routes.tenants import quota_headers
from evervec.server.view import TENANT, KindReaderView, KindWriterView, View, asked_tenant, view_of
from evervec.settings import Settings
from evervec.stores.values import Draft

router = Routes("records")


class RecordVectorsIn(Given):
    """Vectors that the caller made: one for each chunk of the record."""

    model: str = Field(min_length=1, description="must be the model that serves searches")
    vectors: Items[Items[float] | str] = Field(
        min_length=1, description="each as numbers, or as base64 of little-endian 32-bit floats"
    )


class RecordIn(Given):
    """A record to add: its text, or the object of a typed kind as `data`."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "kind": "note",
                    "id": "tea",
                    "text": "Tea is grown on hills in Assam.",
                    "metadata": {"topic": "plants"},
                }
            ]
        }
    )

    kind: str = Field(min_length=1)
    text: str | None = None
    data: Json | None = Field(None, description="instead of `text`, for a kind with a model")
    id: str | int | None = Field(None, description="default: a new UUIDv7")
    title: str | None = None
    metadata: Json | None = None
    weight: float | None = Field(None, ge=0, le=1)
    priority: int = Field(0, ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY)
    delay: float = Field(0.0, ge=0, lt=1e10, allow_inf_nan=False)
    max_attempts: int | None = Field(None, ge=1, lt=1 << 31)
    version: int | None = Field(None, ge=-(1 << 63), lt=1 << 63)
    created_at: datetime | None = None
    updated_at: datetime | None = None
    boxed: bool = Field(False, description="hidden until it is embedded")
    vectors: RecordVectorsIn | None = Field(None, description="so that nothing is embedded")


class TicketIn(Given):
    """A ticket from adding or deleting a record."""

    kind: str = Field(min_length=1, max_length=LONGEST_NAME)
    id: str = Field(min_length=1, max_length=LONGEST_ID)
    job_id: BigInt
    seq: BigInt
    accepted: bool = True
    is_new: bool = True
    enqueued: bool = True
    status: Status | None = None
    error: str | None = None


@shows(Ticket)
class TicketOut(Shown):
    """The receipt of a change, to wait for it or to search after it."""

    status: Status | None = Field(None, description="status of the change when the wait ended")
    error: str | None = Field(None, description="error of a failed change")


@shows(Record)
class RecordOut(Shown):
    """A record."""

    data: Data = Field(
        None, description="the object that it was made of; null if it was made of a text"
    )


class RecordsOut(Shown):
    """A page of records."""

    records: list[RecordOut]
    cursor: More


@shows(Attempt)
class AttemptOut(Shown):
    """One attempt of a job."""


class HistoryOut(Shown):
    """The attempts of a record, oldest first."""

    attempts: list[AttemptOut]


PREFER = "`wait=30`: respond when it is embedded, or after this many seconds."
IF_MATCH = "The record's ETag: only if it has not changed since."
Prefer = Annotated[str | None, Header(alias="Prefer", description=PREFER)]
IfMatch = Annotated[str | None, Header(alias="If-Match", description=IF_MATCH)]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag that you already have.")
]


async def _kind(kind: Annotated[str, Path(min_length=1)]) -> str:
    return check_name("kind", unquote(kind))


async def _id(id: Annotated[str, Path(min_length=1)]) -> str:
    return check_name("id", unquote(id), LONGEST_ID)


Kind = Annotated[str, Depends(_kind)]
Id = Annotated[str, Depends(_id)]


R = TypeVar("R", bound=RecordIn)


def read_record(shape: type[R], source: bytes, settings: Settings) -> R:
    """Parse and check a record."""
    check_values(source, settings.server_values)
    given = shape.model_validate_json(source)
    check_value([given.metadata, given.data], source, settings.server_depth)
    return given


def draft_of(ev: Evervec, given: RecordIn) -> Draft:
    """The draft of a record, as `add` would save it."""
    options = {name: getattr(given, name) for name in given.model_fields_set & OPTIONS}
    if given.vectors is not None:
        options["vectors"] = Vectors(given.vectors.model, given.vectors.vectors)
    if (given.text is None) is (given.data is None):
        raise Problem(422, "give either text, or data for a kind with a model")
    return ev.draft(given.kind, given.data if given.text is None else given.text, options)


@router.on(
    "POST /v1/records", "Add or change a record", TicketOut, 409, 412, 415, status=202,
    responses={
        201: {"model": TicketOut, "description": "The record is embedded (with `Prefer: wait=`)."},
        202: {"model": TicketOut, "description": "The record is saved, and will be embedded."},
    },
    reads=RecordIn,
    parameters=[
        described("tenant", "query", TENANT),
        described("Prefer", "header", PREFER),
        described("If-Match", "header", IF_MATCH),
        described("Idempotency-Key", "header", IDEMPOTENCY_KEY, **KEY_SHAPE),
    ],
)  # fmt: skip
async def add_record(request: Request) -> Response:
    """Saves the record and its embedding job in one transaction, and responds when both are
    durable. An unchanged record (text, title, metadata and weight) enqueues nothing."""
    view = view_of(request, asked_tenant(request), Role.WRITER, by_kind=True)
    check_media_type(request)
    headers = headers_of(request.scope)
    settings = view.service.ev.settings
    source = await request.body()
    is_large = len(source) >= LARGE_BODY
    if is_large:
        body = await view.run(read_record, RecordIn, source, settings)
    else:
        body = read_record(RecordIn, source, settings)
    view.check_kind(body.kind)
    name = checked_name(headers.get("idempotency-key"))

    async def do() -> Response:
        if body.id is None and name is not None:
            body.id = derived_id(view, body.kind, name)
        draft = await view.run(draft_of, view.ev, body) if is_large else draft_of(view.ev, body)
        if_match = headers.get("if-match")
        draft.if_seq = asked_seq(if_match)
        if if_match is not None and draft.if_seq is None:
            await _must_exist(view, body.kind, draft.id)
        ticket = await view.service.save(Save(view.tenant, body.kind, draft))
        if not ticket.accepted and draft.if_seq is not None:
            raise _changed(ticket)
        place = f"/v1/records/{quote(ticket.kind, safe='')}/{quote(ticket.id, safe='')}"
        tags = {"ETag": entity_tag(ticket.seq), "Location": place}
        if view.service.has_quotas(view.tenant):
            tags.update(quota_headers(await view.run(view.ev.usage)))
        return await _receipt(view, ticket, headers.get("prefer"), 201, tags)

    return await once(view, name, do)


@router.on("GET /v1/records", "List records", RecordsOut)
async def list_records(
    view: KindReaderView,
    kind: Annotated[str | None, Query(min_length=1)] = None,
    embedded: Annotated[
        bool | None,
        Query(description="Only records whose latest change is (or is not) in the index."),
    ] = None,
    filter: Annotated[
        str | None, Query(description="A filter on metadata, as JSON.", examples=['{"year":2020}'])
    ] = None,
    cursor: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = 100,
) -> Response:
    """Ordered by kind and id. `cursor`: from the previous page. A page with long texts has fewer
    than `limit` records."""
    view.check_kind(kind)
    given = None if filter is None else read_filter_json(filter)
    listed = partial(view.ev.records, kind, embedded=embedded, filter=given)
    most = int(view.ev.settings.server_page_mb * 1e6)
    return await view.run(_page, listed, read_cursor(cursor, str, str), limit, most)


def _page(
    listed: Callable[..., list[Record]], after: tuple[str, str] | None, limit: int, most: int
) -> Response:
    found, more = bounded_page(listed, after, limit, most)
    last = make_cursor(found[-1].kind, found[-1].id) if more else None
    return answer_list(RecordsOut, "records", found, {"cursor": last})


@router.on(
    "GET /v1/records/{kind}/{id:path}/history", "List the attempts of a record", HistoryOut, 404
)
async def get_history(view: KindReaderView, kind: Kind, id: Id) -> Response:
    """The latest 1,000, oldest first; empty for a record without attempts."""
    view.check_kind(kind)
    found = await view.run(view.ev.queue.history, kind, id)
    if not found and await view.run(view.ev.queue.status, kind, id) is None:
        raise _absent(kind, id)
    return await view.listed(HistoryOut, "attempts", found, partial(redacted, view.caller))


@router.on(
    "GET /v1/records/{kind}/{id:path}", "Get a record", RecordOut, 404,
    responses={304: {"description": "The record still matches `If-None-Match`."}},
)  # fmt: skip
async def get_record(
    view: KindReaderView, kind: Kind, id: Id, if_none_match: IfNoneMatch = None
) -> Response:
    """The current record, with its ETag; 404 while it is boxed."""
    view.check_kind(kind)
    return await view.run(_record, view.ev, kind, id, if_none_match)


def _record(ev: Evervec, kind: str, id: str, if_none_match: str | None) -> Response:
    found = ev.get(kind, id)
    if found is None:
        raise _absent(kind, id)
    tag = entity_tag(found.seq)
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    return answer(RecordOut, found, headers={"ETag": tag})


@router.on(
    "DELETE /v1/records/{kind}/{id:path}", "Delete a record", TicketOut, 404, 412, status=202,
    responses={
        200: {"model": TicketOut, "description": "Its vectors are deleted too (`Prefer: wait=`)."},
        202: {"model": TicketOut, "description": "Searches no longer find it."},
    },
)  # fmt: skip
async def delete_record(
    view: KindWriterView,
    kind: Kind,
    id: Id,
    prefer: Prefer = None,
    if_match: IfMatch = None,
    version: Annotated[
        int | None,
        Query(
            ge=-(1 << 63), lt=1 << 63,
            description="Only if the record's version is older. If it is not, or there is no such "
            "record, the ticket is not `accepted`.",
        ),
    ] = None,
) -> Response:  # fmt: skip
    """Searches no longer find it; its vectors are deleted soon after. The service keeps `version`
    for a while and refuses records that are not newer."""
    view.check_kind(kind)
    if_seq = asked_seq(if_match)
    async with view.audited("record.delete", f"{kind}/{id}"):
        ticket = await view.run(partial(view.ev.delete, kind, id, version=version, if_seq=if_seq))
        if not ticket.accepted and if_match is not None:
            raise _changed(ticket)
        if not ticket.accepted and version is None:
            raise _absent(kind, id)
    return await _receipt(view, ticket, prefer, 200, {})


async def _receipt(
    view: View, ticket: Ticket, prefer: str | None, when_done: int, headers: dict[str, str]
) -> Response:
    """The response with a ticket, after the wait that the client prefers. The record is saved in
    any case, so a failed embedding is reported in the ticket, not as an error response."""
    wait = asked_wait(prefer)
    if wait is None or not ticket.accepted:
        return answer(TicketOut, ticket, 202, headers)
    headers = {**headers, "Preference-Applied": f"wait={wait:g}"}
    end = await view.service.settle(view.tenant, ticket, wait)
    shown: dict[str, Any] = {name: getattr(ticket, name) for name in Ticket.__slots__}
    shown["status"] = end or Status.PENDING
    if end is Status.FAILED:
        with suppress(EvervecError):  # the record is saved, so respond with its ticket
            job = await view.run(view.ev.queue.get, ticket.job_id)
            shown["error"] = redacted(view.caller, job).error if job else "it was cancelled"
    return answer(TicketOut, shown, when_done if end is Status.DONE else 202, headers)


async def _must_exist(view: View, kind: str, id: str) -> None:
    if await view.run(view.ev.get, kind, id) is None:
        raise Problem(412, f"{kind} {id!r} does not exist")


def _absent(kind: str, id: str) -> Problem:
    return Problem(404, f"{kind} {id!r} does not exist in this tenant")


def _changed(ticket: Ticket) -> Problem:
    return Problem(412, f"{ticket.kind} {ticket.id!r} no longer matches If-Match: get it again")
