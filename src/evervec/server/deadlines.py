"""The deadline of a request, and what ends it early: a client that is gone, a service that stops.

`Request-Timeout: 2.5` gives a request that many seconds, at most `server_most_seconds`; others
have `server_seconds`. What works for it in threads has the same deadline (`evervec.deadlines`),
so an engine's query ends with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from starlette.datastructures import Headers

from evervec.deadlines import Deadline, bounded
from evervec.errors import DeadlineExceeded
from evervec.server.problems import Problem
from evervec.server.requests import App, Message, Receive, Scope, Send
from evervec.settings import Settings

T = TypeVar("T")

HEADER = "request-timeout"
GONE = "the client closed the connection before it was answered"
STOPPING = "the service stops, and has broken this off; nothing was changed: ask again"
_LISTEN_AFTER = 0.1
"""seconds that work may take before the end of its client's connection is listened for"""
_GRACE = 1.0
"""seconds that a thread has to end its work once the deadline is over"""

_call: ContextVar[Call | None] = ContextVar("evervec_call", default=None)


def current_call() -> Call | None:
    """The request that the current task works for."""
    return _call.get()


class Call:
    """A request on its way."""

    def __init__(self, deadline: Deadline, receive: Receive, *, chosen: bool) -> None:
        self.deadline = deadline
        self._chosen = chosen
        """by the client: then it holds for waits too"""
        self._receive = receive
        self._read = False
        self._listening: asyncio.Future[Message] | None = None
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """done when the request is ended before its time"""

    async def receive(self) -> Message:
        """The body, as the application reads it."""
        if self._listening is not None:
            return await asyncio.shield(self._listening)
        message = await self._receive()
        self._read = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    def listen(self) -> None:
        """Note when the client's connection ends; only once its body was read."""
        if self._read and self._listening is None:
            self._listening = asyncio.ensure_future(self._receive())
            self._listening.add_done_callback(lambda _: self.cancel(GONE))

    def cancel(self, why: str) -> None:
        """End the request now, in its threads too."""
        self.deadline.cancel(why)
        if not self._over.done():
            self._over.set_result(None)

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()

    def allow(self, seconds: float) -> None:
        """The client has asked for a wait: give it time, unless it has set a timeout as well."""
        if not self._chosen:
            self.deadline.extend(seconds)

    def restart(self) -> None:
        """A step of a stream has ended."""
        if not self._chosen:
            self.deadline.restart()

    async def pause(self, seconds: float, ends: asyncio.Event) -> None:
        """Wait; less if `ends` is set, the deadline is over or the client is gone."""
        self.listen()
        waits = asyncio.ensure_future(ends.wait())
        try:
            await self._ends(waits, seconds)
        finally:
            waits.cancel()

    async def outcome(self, future: asyncio.Future[T], withdraw: Callable[[], bool]) -> T:
        """What a thread gave, or `DeadlineExceeded`. Work that has not begun is withdrawn."""
        try:
            if not await self._ends(future, _LISTEN_AFTER):
                self.listen()
                await self._ends(future, math.inf)
            if not future.done():
                if withdraw():
                    raise self._too_late("nothing was done, because others were served first")
                await asyncio.wait({future}, timeout=_GRACE)
            if not future.done():
                raise self._too_late("a change may still be made")
        except asyncio.CancelledError:
            withdraw()
            self.cancel(STOPPING)
            raise
        return future.result()

    async def _ends(self, future: asyncio.Future[Any], most: float) -> bool:
        """Wait for work until it is done, the client gone or the deadline over."""
        events: set[asyncio.Future[Any]] = {future, self._over}
        limit = min(most, self.deadline.left)
        await asyncio.wait(events, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        return future.done()

    def _too_late(self, what: str) -> DeadlineExceeded:
        """The deadline's error, with what became of the request."""
        error = self.deadline.error()
        return type(error)(f"{error}; {what}")


class Deadlines:
    """The layer that gives each request its deadline."""

    def __init__(self, app: App, settings: Settings, calls: set[Call]) -> None:
        self._app = app
        self._usual = settings.server_seconds
        self._most = settings.server_most_seconds
        self._calls = calls
        """those under way, for whoever has to end them"""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(HEADER)
        try:
            seconds = self._usual if given is None else self._asked(given)
        except Problem as problem:
            await problem.response(scope["request_id"])(scope, receive, send)
            return
        call = Call(Deadline(seconds), receive, chosen=given is not None)
        self._calls.add(call)
        token = _call.set(call)
        try:
            with bounded(call.deadline):
                await self._app(scope, call.receive, send)
        finally:
            _call.reset(token)
            self._calls.discard(call)
            call.close()

    def _asked(self, given: str) -> float:
        """The seconds that a client allows."""
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise Problem(
                422, f"Request-Timeout: must be a number of seconds above 0, not {given[:40]!r}"
            )
        return min(seconds, self._most)
