"""Groups calls of many tasks into one: while a call runs, the next ones are collected.

A commit that is synced to disk takes milliseconds, whether it saves one record or a hundred. So
tasks that ask meanwhile share the next call. There is no added delay: if no call is running,
a call starts at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from queue import SimpleQueue
from typing import Generic, TypeVar

from evervec.runtime.loops import Outcome, outcome, resolve

_PATIENCE = 1.0
"""seconds that `close` waits for a running call"""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


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
        outcome: Outcome = outcome,
        size_of: Callable[[Asked], int] = lambda _: 0,
        most_size: int = 0,
    ) -> None:
        """`outcome`: how callers await their results. `size_of` and `most_size`: a call takes the
        item that waits longest, and others that together are not larger."""
        self._do = do
        self._outcome = outcome
        self._most = most
        self._size_of = size_of
        self._most_size = most_size
        self._waiting: dict[asyncio.Future[Answer], Asked] = {}
        self._under_way = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"evervec-{name}", daemon=True)
        self._thread.start()

    async def __call__(self, asked: Asked) -> Answer:
        """The result for one item."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._waiting[answer] = asked
        if not self._under_way:
            self._go(loop)
        return await self._outcome(answer, partial(self._leave, answer))

    def _leave(self, answer: asyncio.Future[Answer]) -> bool:
        """Withdraw an item that has not begun."""
        waits = answer in self._waiting
        self._waiting.pop(answer, None)
        return waits

    def _go(self, loop: asyncio.AbstractEventLoop) -> None:
        """Pass the waiting items to the thread, up to `most`."""
        group = list(islice(self._fitting(), self._most))
        questions = [self._waiting.pop(answer) for answer in group]

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

    def _fitting(self) -> Iterator[asyncio.Future[Answer]]:
        """The waiting items that one call may take: the oldest, however large it is, and others.
        So small items pass large ones, and each call has one large item at most."""
        size = 0
        for place, (answer, asked) in enumerate(self._waiting.items()):
            own = self._size_of(asked) if place else 0
            if size + own <= self._most_size:
                size += own
                yield answer

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        group: Sequence[asyncio.Future[Answer]],
        answers: Sequence[Answer | Exception],
    ) -> None:
        self._under_way = False
        if self._waiting:
            self._go(loop)
        for future, answer in zip(group, answers, strict=True):
            resolve(future, answer)

    def _work(self) -> None:
        while work := self._orders.get():
            work()

    def close(self) -> None:
        """Finish the running call, unless it hangs."""
        self._orders.put(None)
        self._thread.join(_PATIENCE)
