"""Records: lists by kind and metadata, and one record with its chunks and its history."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from fastapi import Depends, Query

from evervec.errors import DeadlineExceeded, EvervecError, InvalidArgument
from evervec.facade import Evervec
from evervec.model.basics import make_cursor
from evervec.model.deadlines import deadline
from evervec.model.jobs import Attempt, Job
from evervec.model.records import Hit, Record
from evervec.records.drafts import LONGEST_ID, check_name
from evervec.records.kinds import plain_data
from evervec.server.answers import MOST_AT_ONCE, read_cursor
from evervec.server.dashboard.excerpts import Piece, pieces
from evervec.server.dashboard.filter_form import TESTS, FilterForm
from evervec.server.dashboard.page_routes import Done, Form, Pages, as_json
from evervec.server.dashboard.paths import link, name_of
from evervec.server.dashboard.renderer import Values
from evervec.server.dashboard.tables import Table
from evervec.server.index_loader import IndexLoader
from evervec.server.problems import Problem, problem_of, redacted
from evervec.server.routes.page import bounded_page
from evervec.server.view import ReaderView, View, WriterView

router = Pages()

_SIMILAR = 6
_LOAD_SECONDS = 0.1
"""for which a page waits until the index is loaded"""
_LONGEST_SHOWN = 60_000
"""characters of a text that are shown"""
_MOST_ATTEMPTS = 200
_PAGE = 50
_LIST_SECONDS = 3.0
_TOO_LONG = (
    "too few records pass this filter to list them in time: choose a kind or another filter, or see "
    "Jobs for records that are not searchable yet"
)
_EMBEDDED = {"": None, "yes": True, "no": False}
_TYPED = 60
"""characters up to which a person types the id to confirm"""


# lists
@router.page("/ui/records", "records.html")
async def records(
    view: ReaderView,
    kind: str = "",
    embedded: str = "",
    cursor: str = "",
    limit: Annotated[int, Query(ge=1, le=MOST_AT_ONCE)] = _PAGE,
) -> Values:
    form = FilterForm.read(view.request.query_params)
    kinds = await view.run(view.ev.kinds)
    chosen = {"kind": kind, "embedded": embedded, **form.params}
    values: Values = {
        "kinds": sorted({*kinds, kind} - {""}), "kind": kind, "embedded": embedded, "form": form,
        "tests": TESTS, "cursor": cursor, "problem": None, "records": Table("records", []),
        "tenant": view.request.query_params.get("tenant"), "own_tenant": view.tenant,
    }  # fmt: skip
    try:
        listed = partial(
            view.ev.records, kind or None, filter=form.filter(),
            embedded=_embedded(embedded),
        )  # fmt: skip
        place = read_cursor(cursor or None, str, str)
        most = int(view.ev.settings.server_page_mb * 1e6)
        found, more = await view.run(_page_in_time, listed, place, limit, most)
    except DeadlineExceeded:
        return values | {"problem": Problem(422, _TOO_LONG)}
    except (Problem, InvalidArgument) as error:
        return values | {"problem": problem_of(error, view.caller)}
    following = None
    if more:
        end = make_cursor(found[-1].kind, found[-1].id)
        asked = {"limit": None if limit == _PAGE else limit, "tenant": values["tenant"]}
        following = link(view.request.scope, "records", **chosen, **asked, cursor=end)
    hidden = frozenset({"data"})
    return values | {"records": Table("records", found, hidden=hidden, more=following)}


def _embedded(chosen: str) -> bool | None:
    if chosen not in _EMBEDDED:
        raise Problem(422, "embedded: must be yes, no or empty")
    return _EMBEDDED[chosen]


def _page_in_time(
    listed: Callable[..., list[Record]], after: tuple[str, str] | None, limit: int, most: int
) -> tuple[list[Record], bool]:
    """A filter that hardly any record passes makes the store read all of them."""
    with deadline(_LIST_SECONDS):
        return bounded_page(listed, after, limit, most)


# one record
async def _kind(kind: str) -> str:
    return check_name("kind", name_of(kind))


async def _id(id: str) -> str:
    return check_name("id", name_of(id), LONGEST_ID)


Kind = Annotated[str, Depends(_kind)]
Id = Annotated[str, Depends(_id)]


@dataclass(frozen=True, slots=True)
class InVersion:
    """A record in one embedding version."""

    name: str
    state: str
    chunks: int | None
    """that the index holds; None: none yet"""
    current: bool
    """they are of the latest change"""
    job: Job | None


@dataclass(frozen=True, slots=True)
class Whole:
    """All that the page shows of a record."""

    record: Record | None
    jobs: list[Job]
    attempts: list[Attempt]
    versions: list[InVersion]
    pieces: list[Piece]
    chunks: int
    similar: list[Hit] | None
    """None: they are not known"""
    is_loading: bool
    """they are not known yet, because the index is being loaded"""
    data: str | None
    """its object, as much of it as is shown"""


@router.page("/ui/records/{kind}/{id:path}", "record.html")
async def record(view: ReaderView, kind: Kind, id: Id) -> Values:
    found = await view.run(_whole, view.ev, kind, id, view.service.index_loader)
    if found.record is None and not found.jobs:
        raise Problem(404, f"{kind} {id!r} does not exist in this tenant")
    shown = [redacted(view.caller, attempt) for attempt in found.attempts[-_MOST_ATTEMPTS:]]
    text = found.record.text if found.record else ""
    return {
        "kind": kind, "id": id, "record": found.record, "versions": found.versions,
        "jobs": [redacted(view.caller, job) for job in found.jobs],
        "attempts": Table("attempts", shown), "left_out": len(found.attempts) - len(shown),
        "pieces": found.pieces, "chunks": found.chunks, "text": text,
        "longest": _LONGEST_SHOWN, "similar": found.similar, "is_loading": found.is_loading,
        "as_json": as_json, "data": found.data,
        "confirm": _confirmation(id), "tenant": view.request.query_params.get("tenant"),
    }  # fmt: skip


def _whole(ev: Evervec, kind: str, id: str, loader: IndexLoader) -> Whole:
    jobs = ev.queue.jobs(kind=kind, id=id, limit=20)
    record = ev.get(kind, id)
    attempts = ev.queue.history(kind, id) if record or jobs else []
    versions, borders = [], list[tuple[int, int]]()
    for c in ev.store.versions.collections_of(ev.tenant):
        if c.kind != kind or c.spec is None or c.state == "retired":
            continue
        entry = next(iter(ev.store.records.entries(ev.tenant, kind, [id], c.version)), None)
        job = next((job for job in jobs if job.embedding_version == c.spec.name), None)
        count = len(entry.chunks) if entry else None
        versions.append(InVersion(c.spec.name, c.state, count, bool(entry and entry.current), job))
        if entry and entry.current and c.state == "serving":
            borders = [(chunk.start, chunk.end) for chunk in entry.chunks]
    divided = pieces(min(len(record.text), _LONGEST_SHOWN), borders) if record else []
    similar, is_loading = None, False
    if record is not None:
        # it is not embedded yet, or the index is away: the rest is shown
        with suppress(EvervecError):
            is_loading = not loader.is_ready(ev, kind, _LOAD_SECONDS)
            if not is_loading:
                found = ev.similar(kind, id, _SIMILAR)
                similar = sorted(found, key=lambda hit: -(hit.similarity or 0.0))  # not by age
    data = None if record is None else plain_data(record.data)
    shown = None if data is None else as_json(data, _LONGEST_SHOWN)
    return Whole(
        record, jobs, attempts, versions, divided, len(borders), similar, is_loading, shown
    )  # fmt: skip


def _confirmation(id: str) -> str:
    """What a person types to delete a record: its id, unless that cannot be typed."""
    plain = id.isascii() and id.isprintable() and id == id.strip() and len(id) <= _TYPED
    return id if plain else "delete"


@router.action("/ui/records/{kind}/{id:path}")
async def change_record(view: WriterView, kind: Kind, id: Id, form: Form) -> str | Done:
    if form.get("do") == "embed":
        return await _embed(view, kind, id)
    form.confirm(_confirmation(id))
    seq = form.number("seq", "seq")
    async with view.audited("record.delete", f"{kind}/{id}"):
        ticket = await view.run(partial(view.ev.delete, kind, id, if_seq=seq))
        if not ticket.accepted:
            raise Problem(409, f"{kind} {id!r} has changed or is gone: look at it again")
    tenant = view.request.query_params.get("tenant")
    address = link(view.request.scope, "records", kind=kind, tenant=tenant)
    return Done(f"{kind} {id[:80]!r} is deleted: searches no longer find it.", address)


async def _embed(view: View, kind: str, id: str) -> str:
    """Embed a record again; chunks that have not changed are reused."""
    async with view.audited("record.enqueue", f"{kind}/{id}"):
        if await view.run(view.ev.get, kind, id) is None:
            raise Problem(404, f"{kind} {id!r} does not exist in this tenant")
        await view.run(view.ev.queue.enqueue, kind, id)
    return f"{kind} {id[:80]!r} is enqueued."
