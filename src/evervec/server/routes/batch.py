"""Many records in one request: NDJSON in, NDJSON tickets out, in constant memory.

Lines are saved as they arrive; those that arrive during a write are saved together in the next.
The first invalid line ends the batch: the records before it are saved and have tickets, and the
last line of the response is a problem document with the line's position. If it is the first line,
the whole response is that document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import groupby
from typing import Annotated

from fastapi import Query
from pydantic import Field, TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from evervec.errors import EvervecError
from evervec.model.jobs import Ticket
from evervec.records.writer import save_each
from evervec.server.answers import LINES
from evervec.server.buffers import FREE_BYTES
from evervec.server.deadlines import current_call
from evervec.server.idempotency import IdempotencyKey, derived_id
from evervec.server.problems import Problem, problem_of
from evervec.server.requests import (
    Receive,
    Scope,
    Send,
    check_encoding,
    media_type_of,
)
from evervec.server.router import Routes
from evervec.server.routes.records import RecordIn, draft_of, read_record
from evervec.server.streams import IncomingBody, Spool
from evervec.server.view import KindWriterView, View
from evervec.stores.values import Draft

router = Routes("records")

_NDJSON = {LINES, "application/ndjson", "application/jsonl", "application/json-lines"}
_LINES = {"type": "string", "format": "ndjson"}
_dump = TypeAdapter(Ticket).dump_json
_MANY_LINES = 5000
"""lines that are split in a thread: a megabyte can have a million"""


class LineIn(RecordIn):
    """A line of a batch: `?kind=` may set the kind of all lines."""

    kind: str | None = Field(None, min_length=1)  # type: ignore[assignment]


@router.on(
    "POST /v1/records/batch", "Add many records", None, 415,
    responses={
        200: {
            "description": "A ticket for each line, in order; after an error, a problem document.",
            "content": {LINES: {"schema": _LINES | {"description": "Lines of `TicketOut`."}}},
        }
    },
    response_class=Response,
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": "One record per line, as for `POST /v1/records`.",
            "content": {
                LINES: {
                    "schema": _LINES | {"description": "Lines of `RecordIn`."},
                    "example": '{"kind": "note", "id": 1, "text": "one"}\n'
                    '{"kind": "note", "id": 2, "text": "two"}\n',
                }
            },
        }
    },
)  # fmt: skip
async def add_records(
    request: Request,
    view: KindWriterView,
    kind: Annotated[
        str | None, Query(min_length=1, description="kind of lines without one")
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Tickets are sent while lines are still being received. With an `Idempotency-Key`, lines
    without an id get the same id in each repetition of the batch."""
    given = media_type_of(request.headers)
    if given not in _NDJSON:
        raise Problem(
            415, f"a batch must be NDJSON (Content-Type: {LINES}), not {given or 'untyped'}"
        )
    check_encoding(request)
    writer = _Batch(view, kind, idempotency_key)
    writer.check_declared(request)
    spool = Spool()
    work = asyncio.create_task(writer.work(request, spool))
    try:
        filled = await spool.filled()
    except asyncio.CancelledError:
        work.cancel()
        raise
    if not filled:
        spool.close()
        await work  # raises the error of the first line
        return Response(media_type=LINES)
    return _Tickets(spool, work)


class _Tickets(Response):
    """A response that is sent while the body is still read. Starlette's streaming response
    listens for a disconnect and would consume parts of the body."""

    media_type = LINES

    def __init__(self, spool: Spool, work: asyncio.Task[None]) -> None:
        self.status_code = 200
        self.background = None
        self.body = b""
        self.init_headers()
        del self.headers["content-length"]
        self._spool = spool
        self._work = work

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send(start)
            async for tickets in self._spool:
                await send({"type": "http.response.body", "body": tickets, "more_body": True})
            await self._work
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._work.cancel()


class _Batch:
    """One batch in progress."""

    def __init__(self, view: View, kind: str | None, name: str | None) -> None:
        self._view = view
        self._ev = view.ev
        self._kind = kind
        self._name = name
        self._settings = self._ev.settings
        self._longest = int(self._settings.server_body_mb * 1e6)
        self._most_bytes = int(self._settings.server_batch_mb * 1e6)
        self._position = 0

    def check_declared(self, request: Request) -> None:
        """Reject a body whose Content-Length is too large, before it is read."""
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared) > self._most_bytes:
            raise self._too_long()

    async def work(self, request: Request, spool: Spool) -> None:
        """Save all lines of the body; raises a `Problem` if the first one is rejected."""
        body = IncomingBody(request, self._most_bytes)
        try:
            problem = await self._save_all(body, spool)
            if problem is None and body.is_too_long:
                problem = self._placed(self._too_long(), 0)
            if problem is None and body.problem is not None:
                problem = self._placed(body.problem, 0)
            if problem:
                # the client may not read before it has sent everything: read on, up to a limit
                await body.discard_rest(self._longest)
                if not self._position:
                    raise problem
                spool.write(problem.encoded(request.scope["request_id"]) + b"\n")
        finally:
            body.close()
            spool.end()

    async def _save_all(self, body: IncomingBody, spool: Spool) -> Problem | None:
        async for lines in self._lines(body):
            if call := current_call():
                call.restart()
            tickets, problem = await self._view.run(self._save, lines)
            if tickets:
                spool.write(b"".join(tickets))
            if problem:
                return problem
        return None

    async def _lines(self, body: IncomingBody) -> AsyncIterator[list[bytes]]:
        """Lines that can be saved together: those that have arrived, up to `add_batch`. The part
        of a line that is too long is yielded, to be rejected."""
        rest = bytearray()  # the beginning of an incomplete line
        most = self._settings.add_batch
        while (taken := await body.take(len(rest))) is not None:
            rest.extend(taken)
            end = 1 + rest.rfind(b"\n", len(rest) - len(taken))
            if len(rest) - end > self._longest:
                end = len(rest)
            elif len(rest) - end > FREE_BYTES:
                body.check_room()
            if not end:
                continue
            whole = bytes(rest[:end])
            del rest[:end]
            if whole.count(b"\n") > _MANY_LINES:
                lines = await self._view.run(_split, whole)
            else:
                lines = _split(whole)
            for start in range(0, len(lines), most):
                yield lines[start : start + most]
        if rest and not rest.isspace() and not body.is_too_long and body.problem is None:
            yield [bytes(rest)]

    def _save(self, lines: list[bytes]) -> tuple[list[bytes], Problem | None]:
        """The tickets of the lines before the first invalid one, and its problem."""
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
                self._ev.attachments.check_writable(kind)
                for ticket in save_each(self._ev.store.changes, self._ev.tenant, kind, group):
                    if isinstance(ticket, EvervecError):
                        raise ticket
                    tickets += (_dump(ticket), b"\n")
        except EvervecError as error:
            problem = self._placed(error, len(tickets) // 2)
        self._position += len(tickets) // 2
        return tickets, problem

    def _read_line(self, line: bytes, position: int) -> tuple[str, Draft]:
        if position >= self._settings.server_batch:
            most = self._settings.server_batch
            raise Problem(413, f"a batch may have {most:,} records (server_batch): send several")
        if len(line) > self._longest:
            raise Problem(413, f"the line is longer than {self._longest:,} bytes (server_body_mb)")
        given = read_record(LineIn, line, self._settings)
        given.kind = kind = given.kind or self._kind
        if kind is None:
            raise Problem(422, "kind: is missing; set it in the line, or for all lines with ?kind=")
        self._view.check_kind(kind)
        if given.id is None and self._name is not None:
            given.id = derived_id(self._view, kind, self._name, position)
        return kind, draft_of(self._ev, given)

    def _too_long(self) -> Problem:
        most = self._most_bytes
        return Problem(413, f"a batch may have {most:,} bytes (server_batch_mb): send several")

    def _placed(self, error: Exception, behind: int) -> Problem:
        """The problem of a record, with its position in the batch."""
        position = self._position + behind
        found = problem_of(error, self._view.caller)
        detail = f"record at position {position}: {found.detail}"
        return Problem(
            found.status_code, detail, type=found.type, headers=found.headers, position=position
        )


def _split(whole: bytes) -> list[bytes]:
    """The lines that are not empty."""
    return [line for line in whole.split(b"\n") if line and not line.isspace()]


def _runs(drafts: list[tuple[str, Draft]]) -> Iterator[tuple[str, list[Draft]]]:
    """Adjacent drafts of one kind, which one transaction can save."""
    for kind, group in groupby(drafts, key=lambda pair: pair[0]):
        yield kind, [draft for _, draft in group]
