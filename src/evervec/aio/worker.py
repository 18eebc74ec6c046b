"""A worker of an asynchronous store: it runs in threads, and the event loop starts and drains it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from evervec.runtime.loops import uncancelled
from evervec.runtime.threads import start, submit
from evervec.worker.worker import Worker

T = TypeVar("T")


class AsyncWorker(AbstractAsyncContextManager["AsyncWorker"]):
    """Processes jobs in the background of an `async with` block, and is drained at its end."""

    def __init__(self, make: Callable[[], Awaitable[Worker]]) -> None:
        self._make = make
        self._worker: Worker | None = None

    async def __aenter__(self) -> AsyncWorker:
        self._worker = await self._make()
        self._worker.__enter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._worker is not None
        await work(self._worker, self._worker.__exit__)

    async def stop(self, drain_seconds: float | None = None) -> None:
        """Stop claiming; finish claimed jobs within the deadline, and release the rest."""
        if self._worker is not None:
            stop = self._worker.stop
            await asyncio.wrap_future(submit("evervec-stop", lambda: stop(drain_seconds)))

    @property
    def running(self) -> bool:
        """Whether the worker's thread is alive."""
        return self._worker is not None and self._worker.running

    @property
    def stopping(self) -> bool:
        return self._worker is not None and self._worker.stopping

    @property
    def trouble(self) -> str | None:
        """Why the worker makes no progress: `stopped`, `failing` or `stuck`; None when healthy."""
        return "stopped" if self._worker is None else self._worker.trouble


async def work(worker: Worker, do: Callable[[], T]) -> T:
    """The result of a call during which a worker works. A task that is cancelled meanwhile stops
    the worker without a drain, which releases its jobs, and ends after it."""
    ended = asyncio.wrap_future(submit("evervec-async-worker", do))
    try:
        return await asyncio.shield(ended)
    except asyncio.CancelledError:
        start("evervec-stop", worker.stop, 0.0)
        with suppress(Exception):  # nobody is left to be told
            await uncancelled(ended)
        raise
