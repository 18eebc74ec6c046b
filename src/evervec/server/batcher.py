"""Groups calls of many requests into one: while a call runs, the next ones are collected.

A commit that is synced to disk takes milliseconds, whether it saves one record or a hundred. So
requests that arrive meanwhile share the next call. There is no added delay: if no call is running,
a call starts at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Generic, TypeVar

from evervec.server.deadlines import current_call

_PATIENCE = 1.0
"""seconds that `close` waits for a running call"""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Group = list[tuple[Asked, asyncio.Future[Answer]]]


class Batcher(Generic[Asked, Answer]):
    """Turns a blocking function of many items into an async function of one.

    `do` returns a result for each item, in order; an exception among the results is raised for
    that item only, and an exception that `do` raises for all items. It runs in one dedicated
    thread, which has less overhead than a pool.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Asked]], Sequence[Answer] | Sequence[Answer | Exception]],
        most: int = 256,
    ) -> None:
        self._do = do
        self._most = most
        self._waiting: Group[Asked, Answer] = []
        self._under_way = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"evervec-{name}", daemon=True)
        self._thread.start()

    async def __call__(self, asked: Asked) -> Answer:
        """The result, within the deadline of the calling request."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        entry = (asked, answer)
        self._waiting.append(entry)
        if not self._under_way:
            self._go(loop)
        call = current_call()
        return await (answer if call is None else call.outcome(answer, partial(self._leave, entry)))

    def _leave(self, entry: tuple[Asked, asyncio.Future[Answer]]) -> bool:
        """Withdraw an item that has not begun."""
        waits = entry in self._waiting
        if waits:
            self._waiting.remove(entry)
        return waits

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass the waiting items to the thread, up to `most`."""
        group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
        questions = [asked for asked, _ in group]

        def work() -> None:
            answers: Sequence[Answer | Exception]
            try:
                answers = self._do(questions)
            except Exception as error:  # noqa: BLE001 - passed on to the callers
                answers = [error] * len(group)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._answer, loop, group, answers)

        self._under_way = True
        self._orders.put(work)

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        group: Group[Asked, Answer],
        answers: Sequence[Answer | Exception],
    ) -> None:
        self._under_way = False
        if self._waiting:
            self._go(loop)
        for (_, future), answer in zip(group, answers, strict=True):
            if future.done():  # its request has ended
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)

    def _work(self) -> None:
        while work := self._orders.get():
            work()

    def close(self) -> None:
        """Finish the running call, unless it hangs."""
        self._orders.put(None)
        self._thread.join(_PATIENCE)
