"""`/mcp` in the service: MCP over HTTP, with the service's keys, roles, limits and deadlines.

A message passes the same middleware as every request. Its tool then calls the service's own routes
in this process, as the same caller. So there is one set of rules for both, and no way around it.
Each message is complete in itself: there are no sessions to keep, and no streams.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import QueryParams

from evervec.client.connection import error_of, read, record_path, to_json
from evervec.integrations.mcp.records import Access
from evervec.integrations.mcp.server import Context, make_server
from evervec.model.basics import make_cursor
from evervec.model.jobs import Ticket
from evervec.model.records import Hit, Hits, Record, Version
from evervec.model.reports import Stats
from evervec.server.access import Caller
from evervec.server.charges import IN_SCOPE, Charge
from evervec.server.keys import Role
from evervec.server.requests import LARGE_BODY, App, Message, Receive, Scope, Send
from evervec.server.service import Service

# it logs when each message comes and goes, and warns of each malformed one
logging.getLogger("mcp.server").setLevel(logging.ERROR)


class Endpoint:
    """An application that answers MCP messages by calling `routes`."""

    def __init__(self, routes: App) -> None:
        self._routes = routes
        self._server = make_server(self._access)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # One manager for each message: its tasks belong to the request, so they end with it and
        # have its deadline, and no application's lifespan is needed.
        manager = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=1 << 40
        )
        async with manager.run():
            await manager.handle_request(scope, receive, send)

    def _access(self, context: Context) -> Access:
        assert context.request is not None
        scope: Scope = context.request.scope
        caller: Caller = scope["caller"]
        writes = caller.role.rank >= Role.WRITER.rank
        return Access(RouteRecords(self._routes, scope), writes, caller.kinds)


class RouteRecords:
    """The records that the sender of a request may use, through the service's routes."""

    def __init__(self, routes: App, scope: Scope) -> None:
        self._routes = routes
        self._scope = scope
        self._caller: Caller = scope["caller"]
        self._tenant = QueryParams(scope["query_string"]).get("tenant", self._caller.tenant)

    async def search(
        self,
        query: str,
        k: int,
        *,
        kind: Sequence[str] | None,
        filter: Mapping[str, Any] | None,
        min_relevance: float | None,
    ) -> Hits:
        body = {
            "query": query, "k": k, "kind": kind, "filter": filter, "min_relevance": min_relevance
        }  # fmt: skip
        found: Hits = await self._ask("POST", "/v1/search", body, shape=_hits)
        return found

    async def add(
        self,
        kind: str,
        text: str,
        *,
        id: str | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Ticket:
        body = {"kind": kind, "text": text, "id": id, "title": title, "metadata": metadata}
        given = {name: value for name, value in body.items() if value is not None}
        return _ticket(await self._ask("POST", "/v1/records", given))

    async def wait(self, ticket: Ticket, seconds: float) -> None:
        shown = {name: getattr(ticket, name) for name in Ticket.__slots__}
        await self._ask("POST", "/v1/wait", {"ticket": shown, "wait": seconds})

    async def get(self, kind: str, id: str) -> Record | None:
        found: Record | None
        found = await self._ask("GET", record_path(kind, id), absent=None, shape=_record)
        return found

    async def page(
        self,
        kind: str | None,
        *,
        filter: Mapping[str, Any] | None,
        after: tuple[str, str] | None,
        limit: int,
    ) -> tuple[list[Record], bool]:
        asked = {
            "kind": kind,
            "filter": None if filter is None else to_json(filter).decode(),
            "cursor": None if after is None else make_cursor(*after),
            "limit": str(limit),
        }
        found: tuple[list[Record], bool]
        found = await self._ask("GET", "/v1/records", query=asked, shape=_page)
        return found

    async def delete(self, kind: str, id: str) -> Ticket:
        absent = Ticket(kind, id, 0, 0, accepted=False, is_new=False, enqueued=False)
        found = await self._ask("DELETE", record_path(kind, id), absent=absent)
        return found if isinstance(found, Ticket) else _ticket(found)

    async def counts(self, kinds: Sequence[str] | None, most: int) -> tuple[dict[str, int], int]:
        if kinds is not None:
            return {kind: await self._count(kind) for kind in kinds[:most]}, len(kinds)
        versions = await self._ask("GET", "/v1/versions", shape=_versions)
        names = sorted({version.kind for version in versions})
        found = (await self._ask("POST", "/v1/records/count", {"by_kind": True}))["kinds"]
        return {kind: found.get(kind, 0) for kind in names[:most]}, len(names)

    async def _count(self, kind: str) -> int:
        found: int = (await self._ask("POST", "/v1/records/count", {"kind": kind}))["count"]
        return found

    async def stats(self) -> Stats:
        return read(Stats, await self._ask("GET", "/v1/queue/stats"))

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str | None] | None = None,
        absent: Any = ...,
        shape: Callable[[Any], Any] = lambda found: found,
    ) -> Any:
        """The JSON of a route's response, as `shape` makes a value of it; `absent`: what to return
        instead of the error 404. A long response is read in a thread, and counted like one that is
        sent."""
        charge: Charge | None = self._scope.get(IN_SCOPE)
        if charge is not None:
            charge.count_call()
        asked = {"tenant": self._tenant, **(query or {})}
        content = b"" if body is None else to_json(body)
        headers = [(b"content-type", b"application/json")] if content else []
        headers.append((b"content-length", str(len(content)).encode()))
        kept = {
            name: value for name, value in self._scope.items()
            if name not in ("route", "endpoint", "path_params", "evervec.headers")
        }  # fmt: skip
        root = self._scope.get("root_path", "")
        scope: Scope = {
            **kept,
            "method": method,
            "path": root + path,
            "raw_path": (root + path).encode(),
            "query_string": urlencode({k: v for k, v in asked.items() if v is not None}).encode(),
            "headers": headers,
            "answer_headers": {},
        }
        status, parts = 0, []
        messages: list[Message] = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            parts.append(message.get("body", b""))

        await self._routes(scope, receive, send)
        source = b"".join(parts)
        if charge is not None:
            charge.count_bytes(len(source))
        if status == 404 and absent is not ...:
            return absent
        if status >= 400:
            raise error_of(orjson.loads(source))
        if len(source) < LARGE_BODY:
            return shape(orjson.loads(source))
        service: Service = self._scope["app"].state.service
        return await service.run_for(self._caller.tenant, lambda: shape(orjson.loads(source)))


def _hits(found: Any) -> Hits:
    return Hits(read(list[Hit], found["hits"]), via=found["via"], version=found["version"])


def _record(found: Any) -> Record:
    return read(Record, found)


def _page(found: Any) -> tuple[list[Record], bool]:
    return read(list[Record], found["records"]), found["cursor"] is not None


def _versions(found: Any) -> list[Version]:
    return read(list[Version], found["versions"])


def _ticket(answered: dict[str, Any]) -> Ticket:
    return read(Ticket, {k: v for k, v in answered.items() if k in Ticket.__slots__})
