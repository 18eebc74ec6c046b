"""Groups calls of many tasks into one: while a call runs, the next ones are collected.

A commit that is synced to disk takes milliseconds, whether it saves one record or a hundred. So
tasks that ask meanwhile share the next call. There is no added delay: if no call is running,
a call starts at once.

A large item has a call to itself. Those that wait behind it may be many, and their items small: so
they have the next calls, for three times as long as the large one took.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, islice
from queue import SimpleQueue
from typing import Generic, TypeVar

from evervec.runtime.loops import Outcome, outcome, resolve
from evervec.runtime.threads import start

_PATIENCE = 1.0
"""seconds that `close` waits for a running call"""
_SMALL_FIRST = 3
"""times as long as a large item took, others have calls before the next large one"""

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
        do: Callable[[Sequence[Asked]], Sequence[Answer] | Sequence[Answer | BaseException]],
        most: int = 256,
        outcome: Outcome = outcome,
        size_of: Callable[[Asked], int] = lambda _: 0,
        most_size: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`outcome`: how callers await their results. `size_of` and `most_size`: the items
        of a call are together no larger, but for one that is larger by itself."""
        self._do = do
        self._outcome = outcome
        self._most = most
        self._size_of = size_of
        self._most_size = most_size
        self._clock = clock
        self._owed = 0.0
        """seconds of calls that small items have before the next large one"""
        self._waiting: dict[asyncio.Future[Answer], Asked] = {}
        self._under_way = False
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = start(f"evervec-{name}", self._work)

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
        group = self._next()
        questions = [self._waiting.pop(answer) for answer in group]
        is_large = bool(self._most_size) and self._size_of(questions[0]) > self._most_size

        def work() -> None:
            began = self._clock()
            answers: Sequence[Answer | BaseException]
            try:
                answers = self._do(questions)
            except BaseException as error:  # noqa: BLE001 - passed on; the thread serves later calls
                answers = [error] * len(group)
            self._count(is_large, self._clock() - began)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._answer, loop, group, answers)

        self._under_way = True
        self._orders.put(work)

    def _next(self) -> list[asyncio.Future[Answer]]:
        """The waiting items that one call takes, the oldest first."""
        if not self._most_size or len(self._waiting) == 1:
            return list(islice(self._waiting, self._most))
        sizes = {answer: self._size_of(asked) for answer, asked in self._waiting.items()}
        small = [answer for answer, size in sizes.items() if size <= self._most_size]
        oldest = next(iter(sizes))
        if sizes[oldest] > self._most_size and not (small and self._owed > 0):
            return [oldest]
        total = list(accumulate(sizes[answer] for answer in small))
        return small[: min(self._most, bisect_right(total, self._most_size))]

    def _count(self, is_large: bool, seconds: float) -> None:
        """Count a call that ended; none is under way."""
        self._owed = _SMALL_FIRST * seconds if is_large else max(0.0, self._owed - seconds)

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        group: Sequence[asyncio.Future[Answer]],
        answers: Sequence[Answer | BaseException],
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
