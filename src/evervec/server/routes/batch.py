"""Many records in one request: NDJSON in, NDJSON tickets out, in constant memory.

Lines are saved as they come, as many together as arrived while the last ones were written.
A bad line ends it: what came before it is saved and ticketed, and the last line of the
answer is a problem document with the line's position. If it is the first, the whole answer
is that document.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from evervec.errors import EvervecError
from evervec.model import Ticket
from evervec.server.access import View, Writing
from evervec.server.problems import Problem, documented, problem_of
from evervec.server.repeats import IdempotencyKey, made_id
from evervec.server.requests import check_value
from evervec.server.routes.records import draft_of
from evervec.server.schemas import RecordIn, TicketOut
from evervec.server.spool import Spool
from evervec.stores.base import Draft

log = logging.getLogger("evervec.server")
router = APIRouter(prefix="/v1/records", tags=["records"])

MEDIA_TYPE = "application/x-ndjson"
_READ_AHEAD = 16
"""chunks of the body that wait for the lines before them to be saved"""
_TOGETHER = 8 << 20
"""bytes of lines that are saved at once, at most"""
_dump = TypeAdapter(Ticket).dump_json


class LineIn(RecordIn):
    """A line of a batch: its kind may be given for all lines, as `?kind=`."""

    kind: str | None = Field(None, min_length=1)  # type: ignore[assignment]


@router.post(
    "/batch",
    summary="Add many records",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "A ticket for each line, in order; a problem document ends it early.",
            "content": {MEDIA_TYPE: {"schema": TicketOut.model_json_schema()}},
        },
        **documented(415),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "A record in each line, as for `POST /v1/records`.",
            "content": {
                MEDIA_TYPE: {
                    "schema": {"type": "string"},
                    "example": '{"kind": "note", "id": 1, "text": "one"}\n'
                    '{"kind": "note", "id": 2, "text": "two"}\n',
                }
            },
        }
    },
)
async def batch(
    request: Request,
    view: Writing,
    kind: Annotated[str | None, Query(min_length=1, description="of lines that name none")] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Tickets come while lines are still being sent. With an `Idempotency-Key`, lines without an
    id get the same one whenever the batch is sent."""
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (
        MEDIA_TYPE,
        "application/jsonl",
        "application/json-lines",
        "application/ndjson",
    ):
        raise Problem(
            415, f"a batch is NDJSON (Content-Type: {MEDIA_TYPE}), not {given or 'unnamed'}"
        )
    spool = Spool()
    work = asyncio.create_task(_Batch(view, kind, idempotency_key).work(request, spool))
    if not await spool.filled():
        await work  # raises what the first line was refused for
    return StreamingResponse(_answers(spool, work), media_type=MEDIA_TYPE)


async def _answers(spool: Spool, work: asyncio.Task[None]) -> AsyncIterator[bytes]:
    try:
        async for tickets in spool:
            yield tickets
    finally:
        work.cancel()  # over, or nobody listens any more


class _Batch:
    """One batch on its way into the store."""

    def __init__(self, view: View, kind: str | None, name: str | None) -> None:
        self._view = view
        self._ev = view.ev
        self._kind = kind
        self._name = name
        self._settings = self._ev.settings
        self._longest = int(self._settings.server_body_mb * 1e6)
        self._position = 0
        self._heard_out = False

    async def work(self, request: Request, spool: Spool) -> None:
        """Save all lines of the body; a `Problem` if the first one is refused."""
        try:
            chunks: asyncio.Queue[bytes | None] = asyncio.Queue(_READ_AHEAD)
            reading = asyncio.create_task(_read(request, chunks))
            try:
                problem = await self._save_all(chunks, spool)
                while problem and not self._heard_out:
                    # many clients send all before they read: those are listened to till then
                    self._heard_out = await chunks.get() is None
            finally:
                reading.cancel()
            if problem and not self._position:
                raise problem
            if problem:
                spool.write(problem.encoded(request.scope["request_id"]) + b"\n")
        finally:
            spool.end()

    async def _save_all(self, chunks: asyncio.Queue[bytes | None], spool: Spool) -> Problem | None:
        async for lines in self._lines(chunks):
            if isinstance(lines, Problem):
                return lines
            tickets, problem = await self._view.run(self._save, lines)
            if tickets:
                spool.write(b"".join(tickets))
            if problem:
                return problem
        return None

    async def _lines(
        self, chunks: asyncio.Queue[bytes | None]
    ) -> AsyncIterator[list[bytes] | Problem]:
        """Lines that can be saved together: those that are there, up to a transaction's worth."""
        rest: bytes = b""
        lines: list[bytes] = []
        size = 0
        while not self._heard_out:
            chunk = await chunks.get()
            self._heard_out = chunk is None
            parts = (rest + chunk if chunk else rest).split(b"\n")
            rest = b"" if self._heard_out else parts.pop()
            whole = [line for line in parts if line and not line.isspace()]
            lines += whole
            size += sum(map(len, whole))
            if len(rest) > self._longest or any(len(line) > self._longest for line in whole):
                lines = [line for line in lines if len(line) <= self._longest]
                yield lines  # those before it, and perhaps some behind it, are good
                yield Problem(
                    413,
                    f"a line is longer than {self._longest:,} bytes (server_body_mb)",
                    position=self._position,
                )
                return
            if not chunks.empty() and len(lines) < self._settings.add_batch and size < _TOGETHER:
                continue
            most = self._settings.add_batch
            for start in range(0, len(lines), most):
                yield lines[start : start + most]
            lines, size = [], 0

    def _save(self, lines: list[bytes]) -> tuple[list[bytes], Problem | None]:
        """Tickets of the lines up to the first bad one, and what is wrong with that."""
        drafts: list[tuple[str, Draft]] = []
        problem = None
        try:
            for line in lines:
                drafts.append(self._read_line(line, self._position + len(drafts)))
        except (Problem, EvervecError, ValidationError) as error:
            problem = self._placed(error, len(drafts))
        tickets: list[bytes] = []
        try:
            for kind, group in _runs(drafts):
                for ticket in self._ev.store.save(self._ev.tenant, kind, group):
                    tickets += (_dump(ticket), b"\n")
        except EvervecError as error:
            problem = self._placed(error, len(tickets) // 2)
        self._position += len(tickets) // 2
        return tickets, problem

    def _read_line(self, line: bytes, position: int) -> tuple[str, Draft]:
        if position >= self._settings.server_batch:
            most = self._settings.server_batch
            raise Problem(413, f"a batch may hold {most:,} records (server_batch): send another")
        given = LineIn.model_validate_json(line)
        check_value(
            given.model_dump(include={"metadata", "data"}), line, self._settings.server_depth
        )
        given.kind = kind = given.kind or self._kind
        if kind is None:
            raise Problem(422, "kind: is missing; name it in the line, or for all as ?kind=")
        if given.id is None and self._name is not None:
            given.id = made_id(self._view, kind, self._name, position)
        return kind, draft_of(self._ev, given)

    def _placed(self, error: Exception, behind: int) -> Problem:
        """What was refused, with its place in the batch."""
        position = self._position + behind
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"]))
            found = Problem(422, f"{place}: {first['msg']}" if place else first["msg"])
        else:
            found = problem_of(error)
        detail = f"record at position {position}: {found.detail}"
        return Problem(
            found.status_code, detail, type=found.type, headers=found.headers, position=position
        )


def _runs(drafts: list[tuple[str, Draft]]) -> Iterator[tuple[str, list[Draft]]]:
    """Neighbours of one kind, which one transaction can save."""
    for kind, group in groupby(drafts, key=lambda pair: pair[0]):
        yield kind, [draft for _, draft in group]


async def _read(request: Request, chunks: asyncio.Queue[Any]) -> None:
    """The body's chunks, as fast as they are wanted; None behind the last."""
    try:
        async for chunk in request.stream():
            if chunk:
                await chunks.put(chunk)
    except ClientDisconnect:
        log.info("a client left in the middle of its batch")
    await chunks.put(None)
