"""The tools: what each asks for, does and answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from mcp_types import Tool as ListedTool
from mcp_types import ToolAnnotations
from pydantic import BaseModel, ConfigDict, Field

from evervec.errors import DeadlineExceeded, JobFailed, WaitTimeout
from evervec.integrations.mcp.answers import (
    ForgottenOut,
    GotOut,
    HitOut,
    HitsOut,
    KindOut,
    ListOut,
    Place,
    PreviewOut,
    RecordOut,
    RememberedOut,
    StatusOut,
    clipped_note,
    rest_note,
)
from evervec.integrations.mcp.records import Access
from evervec.model.jobs import Ticket
from evervec.model.records import Record
from evervec.model.reports import Stats

_MOST_HITS, _MOST_LISTED, _MOST_KINDS = 50, 100, 200
_LONGEST_WAIT = 60.0
_FILTER = (
    'on metadata, such as {"topic": "plants"}, {"year": {"gte": 2020}}, {"tag": ["a", "b"]} (any '
    'of), {"or": [{…}, {…}]}, {"not": {…}}; several fields must all fit'
)


class Asked(BaseModel):
    """The arguments of a tool; unknown ones are refused, because they are mistyped."""

    model_config = ConfigDict(extra="forbid")


RecordId = Annotated[str, Field(min_length=1)] | Annotated[int, Field(strict=True)]
"""as `add` takes it: a number is the same id as its text"""


class SearchIn(Asked):
    query: str = Field(min_length=1, description="a question or words")
    k: int = Field(10, ge=1, le=_MOST_HITS, description="number of hits")
    kind: str | None = Field(None, description="only this kind")
    filter: dict[str, Any] | None = Field(None, description=_FILTER)
    min_relevance: float | None = Field(None, ge=0, le=1, description="omit hits below")


class RememberIn(Asked):
    text: str = Field(min_length=1)
    id: RecordId | None = Field(
        None, description="a new one if not given; an existing one is replaced"
    )
    title: str | None = None
    kind: str | None = Field(None, description="what sort of record it is")
    metadata: dict[str, Any] | None = Field(None, description="fields to filter by")
    wait: float = Field(
        30.0, ge=0, le=_LONGEST_WAIT, description="seconds to wait until searches find it"
    )


class GetIn(Asked):
    kind: str = Field(min_length=1)
    id: RecordId
    offset: int = Field(0, ge=0, description="character to start from, for a long text")


class ListIn(Asked):
    kind: str | None = Field(None, description="only this kind")
    filter: dict[str, Any] | None = Field(None, description=_FILTER)
    after: Place | None = Field(None, description="`after` of the previous page")
    limit: int = Field(20, ge=1, le=_MOST_LISTED)


class ForgetIn(Asked):
    kind: str = Field(min_length=1)
    id: RecordId
    wait: float = Field(
        30.0, ge=0, le=_LONGEST_WAIT, description="seconds to wait until its vectors are deleted"
    )


class StatusIn(Asked):
    pass


async def search(access: Access, asked: SearchIn) -> HitsOut:
    access.check(asked.kind)
    kinds = access.kinds if asked.kind is None else (asked.kind,)
    found = await access.records.search(
        asked.query, asked.k, kind=None if kinds is None else list(kinds), filter=asked.filter,
        min_relevance=asked.min_relevance,
    )  # fmt: skip
    hits = [HitOut.of(hit) for hit in found]
    if not hits and (missing := await _missing(access, kinds)):
        return HitsOut(hits=[], via=found.via, note=missing)
    notes = [clipped_note(*hits) if hits else "nothing fits"]
    if found.via == "text":
        notes.append("only words could be compared, not meaning")
    return HitsOut(hits=hits, via=found.via, note="; ".join(filter(None, notes)) or None)


async def _missing(access: Access, kinds: tuple[str, ...] | None) -> str | None:
    """What to say if there are no records to search."""
    counts, _ = await access.records.counts(kinds, _MOST_KINDS)
    if any(counts.values()):
        return None
    if kinds is None or kinds == access.kinds:
        return "there are no records yet"
    others, _ = await access.records.counts(access.kinds, _MOST_KINDS)
    known = [kind for kind, count in others.items() if count]
    return f"there are no records of this kind; there are {', '.join(known) or 'none of others'}"


async def remember(access: Access, asked: RememberIn) -> RememberedOut:
    kind = access.usual_kind if asked.kind is None else asked.kind
    access.check(kind)
    ticket = await access.records.add(
        kind,
        asked.text,
        id=None if asked.id is None else str(asked.id),
        title=asked.title,
        metadata=asked.metadata,
    )
    why = await _unsettled(access, ticket, asked.wait)
    note = "saved; searches find it" if why is None else f"saved; text search finds it. {why}"
    return RememberedOut(
        kind=kind, id=ticket.id, saved=True, changed=ticket.enqueued, searchable=why is None,
        note=note,
    )  # fmt: skip


async def get(access: Access, asked: GetIn) -> GotOut:
    access.check(asked.kind)
    record = await access.records.get(asked.kind, str(asked.id))
    if record is None:
        note = "there is no such record: search for it, or list the records of the kind"
        return GotOut(found=False, note=note)
    return GotOut(
        found=True, record=RecordOut.of(record, asked.offset), note=rest_note(record, asked.offset)
    )


async def list_(access: Access, asked: ListIn) -> ListOut:
    access.check(asked.kind)
    after = None if asked.after is None else (asked.after.kind, asked.after.id)
    kinds: list[str | None] = [asked.kind]
    if asked.kind is None and access.kinds is not None:
        kinds = [kind for kind in sorted(access.kinds) if after is None or kind >= after[0]]
    found: list[Record] = []
    more = False
    for kind in kinds:
        left = asked.limit - len(found)
        part, more = await access.records.page(kind, filter=asked.filter, after=after, limit=left)
        found += part
        if more or len(found) == asked.limit:
            more = more or kind != kinds[-1]
            break
    shown = [PreviewOut.of(record) for record in found]
    return ListOut(
        records=shown,
        after=Place(kind=shown[-1].kind, id=shown[-1].id) if more else None,
        note=clipped_note(*shown) if shown else "there are no such records",
    )


async def forget(access: Access, asked: ForgetIn) -> ForgottenOut:
    access.check(asked.kind)
    ticket = await access.records.delete(asked.kind, str(asked.id))
    note, erased = "there was no such record", False
    if ticket.accepted:
        why = await _unsettled(access, ticket, asked.wait)
        erased = why is None
        note = "deleted: neither get nor search finds it" + ("" if why is None else f". {why}")
    return ForgottenOut(
        kind=asked.kind, id=str(asked.id), forgotten=ticket.accepted, erased=erased, note=note
    )


async def status(access: Access, asked: StatusIn) -> StatusOut:
    records = access.records
    limited = access.kinds is not None
    counts, total = await records.counts(access.kinds, _MOST_KINDS)
    shown = [KindOut(kind=kind, records=count) for kind, count in counts.items()]
    stats = None if limited else await records.stats()
    note = f"only the first {_MOST_KINDS} of {total} kinds" if total > len(shown) else None
    if stats is None:
        note = note or "the queue is not shown to one who may use only some kinds"
        return StatusOut(
            kinds=shown, can_write=access.writes, waiting=None, failed=None, paused=None, note=note
        )
    return StatusOut(
        kinds=shown, can_write=access.writes, waiting=stats.pending + stats.processing,
        failed=stats.failed, oldest_waiting_seconds=stats.oldest_pending_seconds,
        paused=_paused(stats), note=note,
    )  # fmt: skip


async def _unsettled(access: Access, ticket: Ticket, seconds: float) -> str | None:
    """Wait until a change is in the index; None when it is, else why it is not."""
    try:
        await access.records.wait(ticket, seconds)
    except (WaitTimeout, DeadlineExceeded):
        within = f"within {seconds:g} s" if seconds else "yet"
        return f"It is not in the vector index {within}, but will be: see status"
    except JobFailed as error:
        return f"It is not in the vector index: {error}"
    return None


def _paused(stats: Stats) -> str | None:
    if stats.paused:
        return "the queue is paused"
    return stats.capped or (stats.gate.reason if stats.gate else None)


@cache
def schema_of(shape: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of arguments or answers; takes a millisecond to make."""
    return shape.model_json_schema(
        mode="validation" if issubclass(shape, Asked) else "serialization"
    )


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool of the server."""

    name: str
    description: str
    asks: type[Asked]
    answers: type[BaseModel]
    do: Callable[[Access, Any], Awaitable[BaseModel]]
    writes: bool = False
    destroys: bool = False
    repeatable: bool = True
    """the same call again changes nothing more"""

    def listed(self, description: str | None, kinds: tuple[str, ...] | None) -> ListedTool:
        """The tool as clients see it; `description`: the operator's own."""
        offered = "" if kinds is None else f" Kinds: {', '.join(kinds)}."
        hints = ToolAnnotations(
            read_only_hint=not self.writes, destructive_hint=self.destroys, idempotent_hint=self.repeatable,
            open_world_hint=False,
        )  # fmt: skip
        return ListedTool(
            name=self.name, description=(description or self.description) + offered,
            input_schema=schema_of(self.asks),
            output_schema=schema_of(self.answers), annotations=hints,
        )  # fmt: skip


TOOLS = {
    tool.name: tool
    for tool in (
        Tool(
            "search",
            "Find records by meaning and by words, best first. Includes every record that remember "
            "reported as searchable.",
            SearchIn, HitsOut, search,
        ),
        Tool(
            "remember",
            "Save a record, or replace the one with the same kind and id. It is durable when this "
            "returns. By default this also waits until searches find it; `searchable` says whether "
            "they do. The same content again changes nothing.",
            RememberIn, RememberedOut, remember, writes=True, destroys=True,
            repeatable=False,  # without an id, each call saves another record
        ),
        Tool("get", "Get a record by kind and id, as it is now.", GetIn, GotOut, get),
        Tool(
            "list",
            "List records by kind and id, with the beginning of their texts. To find records about "
            "something, use search.",
            ListIn, ListOut, list_,
        ),
        Tool(
            "forget",
            "Delete a record. Neither search nor get finds it any more. This cannot be undone.",
            ForgetIn, ForgottenOut, forget, writes=True, destroys=True,
        ),
        Tool(
            "status",
            "Show the kinds of records and their numbers, and whether changes wait to be embedded.",
            StatusIn, StatusOut, status,
        ),
    )
}  # fmt: skip
