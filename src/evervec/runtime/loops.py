"""What an event loop asks of threads: blocking calls whose results its tasks await."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from evervec.runtime.threads import start, stopped

T = TypeVar("T")

Withdraw = Callable[[], bool]
"""withdraws a call that has not begun; False: it has begun"""

_MOST_RESULTS = 64
"""results that a loop passes on before it serves other tasks"""


class Outcome(Protocol):
    """How a caller awaits a call of a thread."""

    def __call__(self, future: asyncio.Future[T], withdraw: Withdraw, /) -> Awaitable[T]: ...


async def outcome(future: asyncio.Future[T], withdraw: Withdraw) -> T:
    """The result of a thread. A caller that is cancelled withdraws what has not begun; what has
    begun goes on to its end, and its result is dropped."""
    try:
        return await future
    except asyncio.CancelledError:
        withdraw()
        raise


async def uncancelled(future: asyncio.Future[T]) -> T:
    """The result of a future that must end before its caller goes on: a caller that is cancelled
    meanwhile is cancelled afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return future.result()


async def ended_first(future: asyncio.Future[T], withdraw: Withdraw = lambda: False) -> T:
    """The result of a call that uses something of its caller: a caller that is cancelled withdraws
    it, or ends after it."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        if not withdraw():
            with suppress(Exception):  # nobody is left to be told
                await uncancelled(future)
        raise


def resolve(future: asyncio.Future[Any], answer: Any) -> None:
    """Resolve a future with a result, or an exception to raise, unless its caller has gone."""
    if future.done():
        return
    if isinstance(answer, StopIteration):  # no future takes it: its task would wait for ever
        answer = stopped(answer)
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def resolve_in(loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], answer: Any) -> None:
    """Resolve a future of a loop from another thread."""
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(resolve, future, answer)


class Call(Generic[T]):
    """A call that waits for a thread, or has one; its task awaits the future."""

    __slots__ = ("_begun", "context", "do", "future")

    def __init__(self, future: asyncio.Future[T], do: Callable[[], T]) -> None:
        self.future = future
        self.do = do
        self.context = contextvars.copy_context()
        self._begun = [True]

    def begin(self) -> bool:
        """Whether the thread may run it: it was not withdrawn."""
        try:
            return self._begun.pop()  # atomic: either the thread or the task gets it
        except IndexError:
            return False

    def withdraw(self) -> bool:
        """Withdraw a call that has not begun; False: it has begun."""
        return self.begin()


class LoopPool:
    """A limited number of daemon threads for the tasks of one event loop, by turns between owners.

    A thread that ends a call takes the next one itself, and leaves the result for the loop: the loop
    may be late, because threads that compute hold the interpreter for up to 5 ms. Threads take
    turns at choosing with a lock; the loop adds calls without it, so it never waits for a thread.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._threads: list[threading.Thread] = []
        self._most = threads
        self._loop = asyncio.get_running_loop()
        self._handed = 0
        """calls whose results the loop has not collected"""
        self._added: deque[tuple[str, Call[Any]]] = deque()
        self._orders: SimpleQueue[bool] = SimpleQueue()
        """True for each call that no thread has taken; False ends a thread"""
        self._choosing = threading.Lock()
        self._waiting: dict[str, deque[Call[Any]]] = {}
        """by owner; the next one comes first"""
        self._ended: deque[tuple[Call[Any], Any]] = deque()
        self._told = False
        """the loop will look at `_ended`"""

    def submit(self, owner: str, do: Callable[[], T]) -> Call[T]:
        """Call a blocking function in a thread, with the caller's context variables."""
        call = Call(self._loop.create_future(), do)
        self._handed += 1
        if len(self._threads) < min(self._most, self._handed):
            number = len(self._threads)
            self._threads.append(start(f"evervec-{self._name}-{number}", self._work))
        self._added.append((owner, call))
        self._orders.put(True)
        return call

    def _work(self) -> None:
        while self._orders.get():
            call, answer = self._next(), None
            if call.begin():
                try:
                    answer = call.context.run(call.do)
                except BaseException as error:  # noqa: BLE001 - raised by the task
                    answer = error
            self._ended.append((call, answer))
            if not self._told:
                self._told = True
                with suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._collect)
            del call, answer  # they may hold much, and the next may be long in coming

    def _next(self) -> Call[Any]:
        """A call of the owner whose turn it is; there is one for each order."""
        with self._choosing:
            while self._added:
                owner, call = self._added.popleft()
                self._waiting.setdefault(owner, deque()).append(call)
            owner = next(iter(self._waiting))
            calls = self._waiting.pop(owner)
            call = calls.popleft()
            if calls:
                self._waiting[owner] = calls  # behind the others
            return call

    def _collect(self) -> None:
        """Pass results on to the tasks: a limited number, as other tasks of the loop wait."""
        self._told = False
        for _ in range(_MOST_RESULTS):
            if not self._ended:
                return
            call, answer = self._ended.popleft()
            self._handed -= 1
            resolve(call.future, answer)
        if not self._told:
            self._told = True
            self._loop.call_soon(self._collect)

    def close(self, patience: float) -> None:
        """End the threads, when no task awaits them; waits so many seconds for calls of tasks that
        were cancelled."""
        ends = time.monotonic() + patience
        for _ in self._threads:
            self._orders.put(False)
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
