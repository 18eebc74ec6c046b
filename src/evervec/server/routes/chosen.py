"""Records that are chosen by a filter: count and delete them."""

from __future__ import annotations

import json
from functools import partial

from pydantic import Field
from starlette.responses import Response

from evervec.server.answers import Given, Json, Shown, answer
from evervec.server.problems import Problem
from evervec.server.router import Routes
from evervec.server.view import KindReaderView, KindWriterView

router = Routes("records")


class ChosenIn(Given):
    """Which records: all, those of a kind, or those that fit a filter."""

    kind: str | None = Field(None, min_length=1)
    filter: Json | None = Field(None, examples=[{"topic": "plants", "year": {"gte": 2020}}])


class CountedIn(ChosenIn):
    """Which records to count."""

    by_kind: bool = Field(False, description="also of each kind; without `kind` and `filter`")


class DeletedIn(ChosenIn):
    """Which records to delete. The filter must not be empty."""

    dry_run: bool = Field(False, description="only count them")


class CountOut(Shown):
    """A number of records."""

    count: int
    kinds: dict[str, int] | None = Field(
        None, description="of each kind, if `by_kind` asked for it"
    )


@router.on("POST /v1/records/count", "Count records", CountOut, 415)
async def count_records(view: KindReaderView, body: CountedIn) -> Response:
    """All records of the tenant, or those of a kind, or those that fit a filter."""
    view.check_kind(body.kind)
    if body.by_kind:
        if body.kind is not None or body.filter is not None:
            raise Problem(422, "by_kind: give neither kind nor filter")
        kinds = await view.run(view.ev.store.records.count_kinds, view.tenant)
        return answer(CountOut, {"count": sum(kinds.values()), "kinds": kinds})
    return answer(CountOut, {"count": await view.run(view.ev.count, body.kind, body.filter)})


@router.on("POST /v1/records/delete", "Delete the records that fit a filter", CountOut, 415)
async def delete_records(view: KindWriterView, body: DeletedIn) -> Response:
    """Returns how many. A request that was interrupted can be repeated."""
    view.check_kind(body.kind)
    do = partial(view.ev.delete_where, body.filter or {}, body.kind, dry_run=body.dry_run)
    if body.dry_run:
        return answer(CountOut, {"count": await view.run(do)})
    which = json.dumps([body.kind, body.filter])
    async with view.audited("record.delete_where", which) as entry:
        deleted = await view.run(do)
        entry.changed = deleted > 0
    return answer(CountOut, {"count": deleted})
