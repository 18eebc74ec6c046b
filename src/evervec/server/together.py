"""Calls of many requests as one: while one is under way, the next ones gather.

A commit that is synced to disk takes milliseconds, whether it saves one record or a hundred.
So requests that come meanwhile wait for the next one and share it. Nobody waits for company:
a call that finds nothing under way goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class Together(Generic[Asked, Answer]):
    """An async function of one, made of a blocking one of many.

    `do` gives an answer for each, in order; an exception among them is raised for that one
    alone, and one that it raises itself for all. It runs in a thread of its own, never twice
    at once.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Asked]], Sequence[Answer] | Sequence[Answer | Exception]],
        most: int = 256,
    ) -> None:
        self._do = do
        self._most = most
        self._waiting: list[tuple[Asked, asyncio.Future[Answer]]] = []
        self._under_way: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, f"evervec-{name}")

    async def __call__(self, asked: Asked) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((asked, answer))
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                questions = [asked for asked, _ in group]
                answers: Sequence[Answer | Exception]
                try:
                    answers = await loop.run_in_executor(self._thread, self._do, questions)
                except Exception as error:  # noqa: BLE001 - it is for those who wait
                    answers = [error] * len(group)
                for (_, future), answer in zip(group, answers, strict=True):
                    if future.done():  # its request is gone
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._under_way = None

    def close(self) -> None:
        self._thread.shutdown()
