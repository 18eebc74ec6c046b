"""Waits of tasks for changes to be in the index. No task holds a thread while it waits: one thread
polls for all of them, and ends when nobody waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from evervec.model.jobs import Status, Ticket
from evervec.queue.ticket_waiter import TicketWaiter
from evervec.runtime.batcher import Batcher
from evervec.runtime.loops import resolve, resolve_in
from evervec.runtime.threads import start
from evervec.stores.base import Store

Asked = tuple[str, Ticket]
Waiting = dict["asyncio.Future[Status]", Asked]


class AsyncTicketWaiter:
    """All tasks of one loop that wait for changes of one store."""

    def __init__(self, waiter: TicketWaiter, store: Store) -> None:
        self._store = store
        self._poll_seconds = waiter.poll_seconds
        self._look = Batcher("async-look", self._settled)
        self._loop = asyncio.get_running_loop()
        self._waiting: Waiting = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    async def end_of(self, tenant: str, ticket: Ticket, seconds: float) -> Status | None:
        """The final status of a change; None if it has none in time."""
        ends = self._loop.time() + seconds
        asked = (tenant, ticket)
        future: asyncio.Future[Status] = self._loop.create_future()
        self._join(future, asked)
        try:
            # after it has joined, so that no change between the two is missed
            if (found := await self._look(asked)) is not None:
                return found
            async with asyncio.timeout_at(ends):
                return await future
        except TimeoutError:
            return None
        finally:
            self._leave(future)

    def _settled(self, asked: Sequence[Asked]) -> list[Status | None]:
        return self._store.jobs.settled(asked)

    def _join(self, future: asyncio.Future[Status], asked: Asked) -> None:
        with self._lock:
            self._waiting[future] = asked
            if self._thread is None:
                self._thread = start("evervec-async-wait", self._poll)

    def _leave(self, future: asyncio.Future[Status]) -> None:
        with self._lock:
            self._waiting.pop(future, None)
        if future.done() and not future.cancelled():
            future.exception()  # its task may have ended by another way

    def _poll(self) -> None:
        """Look for all that wait, after every change of the store."""
        while waiting := self._still_waiting():
            seen = self._store.wait(-1, 0)
            ends: Sequence[Status | Exception | None]
            try:
                ends = self._settled(list(waiting.values()))
            except Exception as error:  # noqa: BLE001 - raised by the tasks
                ends = [error] * len(waiting)
            for future, end in zip(waiting, ends, strict=True):
                if end is not None:
                    self._settle(future, end)
            self._store.wait(seen, self._poll_seconds)

    def _still_waiting(self) -> Waiting:
        with self._lock:
            if not self._waiting:
                self._thread = None
            return dict(self._waiting)

    def _settle(self, future: asyncio.Future[Status], end: Status | Exception) -> None:
        with self._lock:
            self._waiting.pop(future, None)
        resolve_in(self._loop, future, end)

    def release(self, error: Exception) -> None:
        """Raise an error in all tasks that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for future in waiting:
            resolve(future, error)

    def close(self) -> None:
        """End the threads; called in a thread, when nobody waits any more."""
        thread = self._thread
        self._store.wake()
        if thread is not None:
            thread.join()
        self._look.close()
