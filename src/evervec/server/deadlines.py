"""The deadline of a request, and its early end: when the client disconnects, the service stops,
or the key is revoked.

`Request-Timeout: 2.5` sets it in seconds, at most `server_most_seconds`; the default is
`server_seconds`. The body must arrive within it; without `Request-Timeout`, a long body has more time
(`_BODY_RATE`). Threads that work for the request have the same deadline
(`evervec.model.deadlines`), so database queries end with it.

A key is checked at the start of a request. Longer requests (batches, waits, long searches) are
checked again by one query per second for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from evervec.errors import Cancelled, DeadlineExceeded, EvervecError
from evervec.model.deadlines import Deadline, bounded
from evervec.server.buffers import FREE_BYTES, Bodies
from evervec.server.keys import Keys
from evervec.server.problems import Problem, problem_of
from evervec.server.requests import App, Message, Receive, Scope, Send, headers_of
from evervec.settings import Settings

log = logging.getLogger("evervec.server")

T = TypeVar("T")

HEADER = "request-timeout"
GONE = "the client closed the connection before the response"
STOPPING = "the service is stopping and aborted this request; nothing was changed: try again"
_CHECK_SECONDS = 0.1
"""seconds between two checks of all requests in progress"""
_SOON = 2 * _CHECK_SECONDS
"""a deadline with fewer seconds left gets a timer of its own"""
_GRACE = 1.0
"""seconds that a thread has to finish after the deadline"""

_BODY_RATE = 32_768
"""bytes of a long body for which a client has one more second"""

_KEYS_CHECKED = 1.0
"""seconds between two checks of the keys of requests in progress"""

_call: ContextVar[Call | None] = ContextVar("evervec_call", default=None)


def current_call() -> Call | None:
    """The request of the current task."""
    return _call.get()


async def within_request(future: asyncio.Future[T], withdraw: Callable[[], bool]) -> T:
    """The result of a thread, within the deadline of the current request."""
    call = current_call()
    return await (future if call is None else call.outcome(future, withdraw))


class Call:
    """A request in progress."""

    def __init__(
        self, deadline: Deadline, receive: Receive, bodies: Bodies | None = None, *, chosen: bool
    ) -> None:
        self.deadline = deadline
        self.began = time.monotonic()
        self.key_id: str | None = None
        """of the key or token, while it is checked"""
        self.tenant = ""
        """that its body is counted for"""
        self.is_stream = False
        """whether the body is used as it arrives, and `consumed` reports what is done with"""
        self.revoked = False
        self._task = asyncio.current_task()
        self._chosen = chosen
        """the client set the deadline: then it applies to waits too"""
        self._receive = receive
        self._read = False
        self._receiving: asyncio.Task[Any] | None = None
        """the task that waits for the body"""
        self._is_late = False
        """whether that task was cancelled, because the deadline is over"""
        self._bodies = bodies
        self._held = self._counted = 0
        """bytes of the body that are not consumed, and those of them that `bodies` counts"""
        self._was_waiting = False
        """whether it waited for a thread at the last check: most requests end before the next"""
        self._listening: asyncio.Future[Message] | None = None
        self._ended = asyncio.Event()
        """set when the request is cancelled"""
        self._pending: dict[asyncio.Future[Any], Callable[[], bool]] = {}
        """work of threads for this request, with functions that withdraw it"""

    async def receive(self) -> Message:
        """The next message of the body, for the application. Raises a `Problem` if it does not come
        within the deadline, or if there is no room for it."""
        if self._listening is not None:
            return await asyncio.shield(self._listening)
        if self._read:  # what follows is the disconnect
            return await self._receive()
        self._receiving = asyncio.current_task()
        try:
            message = await self._receive()
        except asyncio.CancelledError:
            if not self._is_late:
                raise
            assert self._receiving is not None
            self._receiving.uncancel()
            raise self._late() from None
        finally:
            self._receiving = None
        more = message["type"] == "http.request" and message.get("more_body", False)
        size = len(message.get("body", b""))
        if not self._chosen:
            if more:
                self.deadline.ends += size / _BODY_RATE
            elif self._held:  # its processing has the whole time
                self.deadline.restart()
        self._read = not more
        self._held += size
        if self._held > FREE_BYTES:
            self._count()
        return message

    def consumed(self, size: int) -> None:
        """Report that so many bytes of a stream are no longer held."""
        self._held -= size
        if self._counted:
            self._count()

    def has_room(self, size: int) -> bool:
        """Whether so many bytes more of the body may be held."""
        return self._bodies is None or self._bodies.has_room(self.tenant, size)

    def refusal(self) -> Problem:
        """Why no more of the body may be held."""
        assert self._bodies is not None
        return self._bodies.refusal(self.tenant, 0)

    def _count(self) -> None:
        more = max(0, self._held - FREE_BYTES) - self._counted
        if self._bodies is None or not more:
            return
        if more > 0 and not self.is_stream and not self._bodies.has_room(self.tenant, more):
            raise self._bodies.refusal(self.tenant, more)
        self._bodies.hold(self.tenant, more)
        self._counted += more

    def _late(self) -> Problem:
        """Why the rest of the body is not awaited."""
        error = self.deadline.error()
        if isinstance(error, Cancelled):
            return problem_of(error, None)
        return Problem(
            408,
            f"the body did not arrive within the deadline of {self.deadline.seconds:g} s "
            "(Request-Timeout, server_seconds): send it faster, or allow more time",
        )

    def listen(self) -> None:
        """Watch for the client's disconnect, once its body was read."""
        if self._read and self._listening is None:
            self._listening = asyncio.ensure_future(self._receive())
            self._listening.add_done_callback(lambda _: self.cancel(GONE))

    def cancel(self, why: str) -> None:
        """Cancel the request, including its work in threads."""
        self.deadline.cancel(why)
        self._ended.set()
        self._end()

    def revoke(self) -> None:
        """Cancel the request's task, because its key is no longer valid."""
        self.revoked = True
        if self._task is not None:
            self._task.cancel("the key was revoked")

    def forgive(self) -> None:
        """Undo the task's cancellation, so that it can send a response."""
        if self._task is not None:
            self._task.uncancel()

    def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
        if self._counted and self._bodies is not None:
            self._bodies.hold(self.tenant, -self._counted)
            self._counted, self._bodies = 0, None

    def extend(self, seconds: float) -> None:
        """Extend the deadline for a requested wait, unless the client set a timeout."""
        if not self._chosen:
            self.deadline.extend(seconds)

    def restart(self) -> None:
        """Restart the deadline after a step of a stream."""
        if not self._chosen:
            self.deadline.restart()

    async def pause(self, seconds: float, *ends: asyncio.Event) -> None:
        """Wait, at most until one of `ends` is set, the deadline is over or the client
        disconnects."""
        self.listen()
        waits = [asyncio.ensure_future(event.wait()) for event in (*ends, self._ended)]
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
        """The result of a thread, or `DeadlineExceeded`. Work that has not begun is withdrawn."""
        self._pending[future] = withdraw
        if (left := self.deadline.left) < _SOON:
            asyncio.get_running_loop().call_later(left, self.check)
        try:
            return await future
        except asyncio.CancelledError:
            withdraw()
            self.cancel(STOPPING)
            raise
        finally:
            self._pending.pop(future, None)

    def check(self) -> None:
        """Watch for a disconnect of a waiting client, or end the request after its deadline."""
        if self.deadline.over:
            self._end()
        elif self._pending:
            if self._was_waiting:
                self.listen()
            self._was_waiting = True

    def _end(self) -> None:
        """Fail the request with `DeadlineExceeded`, or because its body is late."""
        if self._receiving is not None and not self._is_late:
            self._is_late = True
            self._receiving.cancel()
        for future, withdraw in list(self._pending.items()):
            if future.done():
                continue
            if withdraw():
                why = "nothing was done, because the service was busy with other requests"
                future.set_exception(self._too_late(why))
            else:
                del self._pending[future]
                asyncio.get_running_loop().call_later(_GRACE, self._give_up, future)

    def _give_up(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(self._too_late("a change may still be made"))

    def _too_late(self, what: str) -> DeadlineExceeded:
        """The deadline's error, with the state of the request's work."""
        error = self.deadline.error()
        return type(error)(f"{error}; {what}")


class _current:  # noqa: N801 - used as a function; a generator would take three times as long
    """Make a call the current task's."""

    __slots__ = ("_bounded", "_call", "_calls", "_token")

    def __init__(self, call: Call, calls: set[Call]) -> None:
        self._call = call
        self._calls = calls
        self._bounded = bounded(call.deadline)

    def __enter__(self) -> None:
        self._calls.add(self._call)
        self._token = _call.set(self._call)
        self._bounded.__enter__()

    def __exit__(self, *_: object) -> None:
        self._bounded.__exit__()
        _call.reset(self._token)
        self._calls.discard(self._call)
        self._call.close()


@contextmanager
def own_call(seconds: float, calls: set[Call]) -> Iterator[None]:
    """A deadline for work of the service that belongs to no single request. It is checked while
    there are requests."""

    async def receive() -> Message:
        raise AssertionError("this call has no client")

    with _current(Call(Deadline(seconds), receive, chosen=True), calls):
        yield


class Deadlines:
    """Middleware that sets deadlines and checks them all together: a timer for each request would
    take a sixth of the time of a small request."""

    def __init__(
        self, app: App, settings: Settings, calls: set[Call], bodies: Bodies | None = None
    ) -> None:
        self._app = app
        self._usual = settings.server_seconds
        self._most = settings.server_most_seconds
        self._bodies = bodies
        self._calls = calls
        """requests in progress; `Service` cancels them when it stops"""
        self._scheduled = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = headers_of(scope).get(HEADER)
        seconds = self._usual if given is None else self._timeout_in(given)
        call = Call(Deadline(seconds), receive, self._bodies, chosen=given is not None)
        with _current(call, self._calls):
            if not self._scheduled:
                self._schedule_check()
            await self._app(scope, call.receive, send)

    def _schedule_check(self) -> None:
        self._scheduled = bool(self._calls)
        if self._scheduled:
            asyncio.get_running_loop().call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        for call in list(self._calls):
            call.check()
        self._schedule_check()

    def _timeout_in(self, given: str) -> float:
        """The seconds of `Request-Timeout`."""
        try:
            seconds = float(given)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise Problem(
                422, f"Request-Timeout: must be a number of seconds above 0, not {given[:40]!r}"
            )
        return min(seconds, self._most)


class Revocations:
    """Ends requests in progress whose key is revoked or has expired, within two seconds."""

    def __init__(self, keys: Keys, calls: set[Call]) -> None:
        self._keys = keys
        self._calls = calls

    async def watch(self) -> None:
        """Check keys periodically; runs until cancelled."""
        while True:
            await asyncio.sleep(_KEYS_CHECKED)
            try:
                await self.check()
            except EvervecError as error:
                log.warning("keys of running requests were not checked: %s", error)

    async def check(self) -> None:
        before = time.monotonic() - _KEYS_CHECKED
        long = {call: call.key_id for call in self._calls if call.key_id and call.began <= before}
        if not long:
            return
        # not in the threads of requests: all may be used by requests that must be cancelled
        good = await asyncio.to_thread(self._keys.good, set(long.values()))
        for call, key_id in long.items():
            if key_id not in good and call.key_id == key_id and not call.revoked:
                call.revoke()
