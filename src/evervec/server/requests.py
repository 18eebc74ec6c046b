"""Handling of every request: its id, a limited body, and a response in every case."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

from starlette.requests import ClientDisconnect, Request

from evervec.server.body_limits import BodyLimits
from evervec.server.problems import Problem
from evervec.settings import Settings
from evervec.telemetry.logs import REQUEST_ID
from evervec.telemetry.traces import request as traced

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

log = logging.getLogger("evervec.server")

_LINGER_BODIES, _LINGER_SECONDS = 4, 2.0
"""how much of a body is read after the response, in multiples of the limit, and how long"""
LARGE_BODY = 32_768
"""bodies from this size are parsed in a thread, in the tenant's turn, not in the event loop"""
_VALID_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
INTERNAL = "internal error: search the service's log for the request_id"
SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""of every response, unless it sets others"""


class Requests:
    """The outermost middleware: request ids, body limits, and responses to errors, both to a
    `Problem` of another middleware and to unexpected ones. It calls `start` before each request,
    and `count` after it, with its status and its seconds."""

    def __init__(
        self,
        app: App,
        start: Callable[[], None],
        settings: Settings,
        count: Callable[[Scope, int, float], None],
    ) -> None:
        self._app = app
        self._start = start
        self._most_bytes = int(settings.server_body_mb * 1e6)
        self._limits = BodyLimits(settings)
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        self._start()
        headers = headers_of(scope)
        given = headers.get("x-request-id", "")
        id = scope["request_id"] = given if _VALID_ID.fullmatch(given) else new_request_id()
        added = scope["answer_headers"] = {}
        REQUEST_ID.set(id)
        # routes see the undecoded path, so that an id may contain a slash as %2F
        scope["path"] = scope["raw_path"].decode("ascii", "replace")
        began, status = time.perf_counter(), 0
        body = _Body(scope, receive)

        async def send_completed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _completed(message.get("headers", ()), id, added)
                if body.may_go_on:
                    message["headers"].append((b"connection", b"close"))
            elif body.may_go_on and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await body.linger(_LINGER_BODIES * self._most_bytes)
                message = {"type": "http.response.body"}
            await send(message)

        try:
            with traced(scope["method"], headers.get("traceparent")) as name:
                try:
                    await self._app(scope, self._bounded(scope, body.receive), send_completed)
                except Problem as problem:
                    if status:  # the response has started
                        raise
                    await problem.response(id)(scope, receive, send_completed)
                name(getattr(scope.get("route"), "path_format", ""))
        except ClientDisconnect:
            log.info("request %s: the client disconnected before the request was complete", id)
        except Exception:
            log.exception("request %s failed", id, extra={"request_id": id})
            if status:  # the connection is cut off
                raise
            await Problem(500, INTERNAL).response(id)(scope, receive, send_completed)
        finally:
            self._count(scope, status, time.perf_counter() - began)

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """Receive with a limit on the body. A batch has its own limits."""
        method, path = scope["method"], path_of(scope)
        most = self._limits.of(method, path)
        if most is None:
            return receive
        left = most
        declared = headers_of(scope).get("content-length", "")

        async def receive_bounded() -> Message:
            nonlocal left
            if declared.isdecimal() and int(declared) > most:
                raise self._limits.refusal(method, path)
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:
                raise self._limits.refusal(method, path)
            return message

        return receive_bounded


def headers_of(scope: Scope) -> dict[str, str]:
    """The headers of a request, the first of each name. They are parsed once for all middleware:
    one lookup in Starlette's headers costs as much as all of this."""
    found: dict[str, str] | None = scope.get("evervec.headers")
    if found is None:
        found = {k.decode("latin-1"): v.decode("latin-1") for k, v in reversed(scope["headers"])}
        scope["evervec.headers"] = found
    return found


def path_of(scope: Scope) -> str:
    """The path without the prefix under which another application has mounted this one."""
    path: str = scope.get("path", "")
    root: str = scope.get("root_path", "")
    return path.removeprefix(root) if root else path


def bearer_of(headers: Mapping[str, str]) -> str:
    """The key or secret in `Authorization: Bearer`; empty if there is none."""
    scheme, _, text = headers.get("authorization", "").partition(" ")
    return text.strip() if scheme.lower() == "bearer" else ""


def media_type_of(headers: Mapping[str, str]) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def new_request_id() -> str:
    """A random request id. It is not a secret, so the faster non-cryptographic generator is
    sufficient."""
    return f"{random.getrandbits(128):032x}"


def _completed(
    headers: Iterable[tuple[bytes, bytes]], id: str, added: Mapping[str, str]
) -> list[tuple[bytes, bytes]]:
    """The headers of a response, with those from middleware (`answer_headers` in the scope) and
    those of every response."""
    given = list(headers)
    names = {name for name, _ in given}
    given.append((b"x-request-id", id.encode()))
    given += [(name.lower().encode(), value.encode()) for name, value in added.items()]
    return given + [pair for pair in SECURITY_HEADERS if pair[0] not in names]


class _Body:
    """The body of a request. If the response starts before the body's end, the connection is
    closed after the response: otherwise the server would read as long as the client sends. Before
    closing, a limited part is read; otherwise the client would see a reset, not the response.
    """

    def __init__(self, scope: Scope, receive: Receive) -> None:
        headers = headers_of(scope)
        sent = headers.get("content-length", "0") != "0" or "transfer-encoding" in headers
        self.may_go_on = sent and scope.get("http_version", "1.1") < "2"
        self._receive = receive

    async def receive(self) -> Message:
        message = await self._receive()
        self.may_go_on = self.may_go_on and message.get("more_body", False)
        return message

    async def linger(self, most: int) -> None:
        """Read and discard up to `most` bytes, for a short time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while self.may_go_on and most > 0:
                    most -= len((await self.receive()).get("body", b""))


def check_media_type(request: Request) -> None:
    """Reject a body whose media type is not JSON; an empty body is allowed."""
    headers = headers_of(request.scope)
    given = media_type_of(headers)
    empty = headers.get("content-length", "0" if not given else "") == "0"
    if empty and "transfer-encoding" not in headers:
        return
    check_encoding(request)
    if given != "application/json" and not given.endswith("+json"):
        raise Problem(
            415, f"the body must be JSON (Content-Type: application/json), not {given or 'untyped'}"
        )


def check_encoding(request: Request) -> None:
    """Reject a compressed body: a small one can decompress to a huge one."""
    given = headers_of(request.scope).get("content-encoding", "identity").strip().lower()
    if given not in ("", "identity"):
        raise Problem(
            415, f"the body is compressed (Content-Encoding: {given[:40]}): send it uncompressed"
        )


def check_values(body: bytes, most: int) -> None:
    """Reject JSON with too many values before it is parsed: creating the objects would block other
    requests. Values are counted by the separators outside of strings."""
    if len(body) < LARGE_BODY:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') <= 4 * most:  # a name and a string for each
        between = b"".join(plain.split(b'"')[::2])
        if sum(map(between.count, (b",", b"[", b"{"))) <= most:
            return
    raise Problem(422, f"the JSON has more than {most:,} values (server_values): send fewer")


def read_json(body: bytes, settings: Settings) -> Any:
    """The JSON value of a body; raises a `Problem` if it is malformed or not supported."""
    check_values(body, settings.server_values)
    deepest = settings.server_depth
    try:
        value = json.loads(body.decode(), parse_constant=_refuse)
    except UnicodeDecodeError as error:
        raise Problem(400, f"the body is not UTF-8: byte {error.start}") from None
    except RecursionError:
        raise _too_deep(deepest) from None
    except ValueError as error:
        raise Problem(400, f"the body is not JSON: {error}") from None
    check_value(value, body, deepest)
    return value


def check_value(value: Any, source: bytes, deepest: int) -> None:
    """Reject deep nesting, and strings with NUL or unpaired surrogates, which JSON can contain
    only as escapes."""
    escaped = b"\\u" in source
    if escaped or source.count(b"{") + source.count(b"[") > deepest:
        _check(value, escaped, deepest, deepest)


def _check(value: Any, strings: bool, left: int, deepest: int) -> None:
    if isinstance(value, dict | list):
        if left == 0:
            raise _too_deep(deepest)
        for part in (*value, *value.values()) if isinstance(value, dict) else value:
            _check(part, strings, left - 1, deepest)
    elif strings and isinstance(value, str):
        if "\0" in value:
            raise Problem(422, "a string in the body has a NUL character: remove it")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Problem(422, "a string in the body has an unpaired surrogate") from None


def _too_deep(deepest: int) -> Problem:
    return Problem(400, f"the JSON is nested more than {deepest} deep (server_depth)")


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
