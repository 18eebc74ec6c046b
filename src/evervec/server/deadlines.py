"""The deadline of a request, and what ends it early: a client that is gone, a service that stops.

`Request-Timeout: 2.5` gives a request that many seconds, at most `server_most_seconds`; others
have `server_seconds`. What works for it in threads has the same deadline (`evervec.model.deadlines`),
so an engine's query ends with it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from evervec.errors import DeadlineExceeded
from evervec.model.deadlines import Deadline, bounded
from evervec.server.problems import Problem
from evervec.server.requests import App, Message, Receive, Scope, Send, headers_of
from evervec.settings import Settings

T = TypeVar("T")

HEADER = "request-timeout"
GONE = "the client closed the connection before it was answered"
STOPPING = "the service stops, and has broken this off; nothing was changed: ask again"
_LOOK = 0.1
"""seconds between two looks at all requests under way"""
_SOON = 2 * _LOOK
"""seconds from which on the end of a deadline is awaited exactly"""
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
        self._waits = False
        """whether it waited for a thread at an earlier look: most requests are over by the next"""
        self._listening: asyncio.Future[Message] | None = None
        self._ended = asyncio.Event()
        """set when the request is ended before its time"""
        self._awaited: dict[asyncio.Future[Any], Callable[[], bool]] = {}
        """what threads do for it, and how to withdraw that"""

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
        self._ended.set()
        self._end()

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
        waits = [asyncio.ensure_future(event.wait()) for event in (ends, self._ended)]
        try:
            await asyncio.wait(
                waits,
                timeout=min(seconds, self.deadline.left),
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            for wait in waits:
                wait.cancel()

    async def outcome(self, future: asyncio.Future[T], withdraw: Callable[[], bool]) -> T:
        """What a thread gave, or `DeadlineExceeded`. Work that has not begun is withdrawn."""
        self._awaited[future] = withdraw
        if (left := self.deadline.left) < _SOON:
            asyncio.get_running_loop().call_later(left, self.look)
        try:
            return await future
        except asyncio.CancelledError:
            withdraw()
            self.cancel(STOPPING)
            raise
        finally:
            self._awaited.pop(future, None)

    def look(self) -> None:
        """Listen to a client that waits for work, or end the request when its time is over."""
        if self.deadline.over:
            self._end()
        elif self._awaited:
            if self._waits:
                self.listen()
            self._waits = True

    def _end(self) -> None:
        """Have the request answered that it is too late."""
        for future, withdraw in list(self._awaited.items()):
            if future.done():
                continue
            if withdraw():
                why = "nothing was done, because others were served first"
                future.set_exception(self._too_late(why))
            else:
                del self._awaited[future]
                asyncio.get_running_loop().call_later(_GRACE, self._give_up, future)

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(self._too_late("a change may still be made"))

    def _too_late(self, what: str) -> DeadlineExceeded:
        """The deadline's error, with what became of the request."""
        error = self.deadline.error()
        return type(error)(f"{error}; {what}")


class Deadlines:
    """The layer that gives each request its deadline, and looks after them all together: a timer
    for each of them takes a sixth of the time of a small request."""

    def __init__(self, app: App, settings: Settings, calls: set[Call]) -> None:
        self._app = app
        self._usual = settings.server_seconds
        self._most = settings.server_most_seconds
        self._calls = calls
        """those under way, for whoever has to end them"""
        self._looking = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = headers_of(scope).get(HEADER)
        try:
            seconds = self._usual if given is None else self._asked(given)
        except Problem as problem:
            await problem.response(scope["request_id"])(scope, receive, send)
            return
        call = Call(Deadline(seconds), receive, chosen=given is not None)
        self._calls.add(call)
        if not self._looking:
            self._look_later()
        token = _call.set(call)
        try:
            with bounded(call.deadline):
                await self._app(scope, call.receive, send)
        finally:
            _call.reset(token)
            self._calls.discard(call)
            call.close()

    def _look_later(self) -> None:
        self._looking = bool(self._calls)
        if self._looking:
            asyncio.get_running_loop().call_later(_LOOK, self._look)

    def _look(self) -> None:
        for call in list(self._calls):
            call.look()
        self._look_later()

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
