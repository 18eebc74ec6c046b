"""What all views of an asynchronous store share: its threads, grouped saves and the waits.

Pools keep apart what must not delay each other: calls of the store, the embedding of queries and
searches with a reranker, which may wait for a provider, and long operations such as `verify`. Records that several tasks add at
the same time are saved in one transaction. No thread is held by a task that waits for a change.

A task that is cancelled leaves no call half done. A call that has not begun is withdrawn. A read that has
begun is interrupted, a write is committed or rolled back, but the task does not wait for that; only a
call inside the caller's own transaction ends before the task does. Such a call has a thread of its
own: those of the pool may all wait for locks that this transaction holds.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

from evervec.aio.connections import CallersConnection
from evervec.aio.waiter import AsyncTicketWaiter
from evervec.embedders.base import is_remote
from evervec.errors import EvervecError, InvalidArgument
from evervec.facade import Evervec
from evervec.model.deadlines import Deadline, bounded, current
from evervec.model.jobs import Job, Ticket
from evervec.records.writer import Save, save_each, save_together
from evervec.runtime.batcher import Batcher
from evervec.runtime.loops import LoopPool, ended_first, uncancelled
from evervec.runtime.threads import submit
from evervec.stores.sql.connections import closed
from evervec.stores.values import Draft

T = TypeVar("T")

_LOCAL, _REMOTE, _MODEL = 2, 8, 1
"""threads for a store or a model in this process, and for one that answers over a network. Threads that
compute delay the event loop, by up to 5 ms each, because they share the interpreter with it."""
_LONG_OPERATIONS = 8
_NEVER = 1e6
"""seconds of the deadline of a call without one: it only serves to cancel the call"""
_CANCELLED = "the task that made this call was cancelled"
_PATIENCE = 10.0
"""seconds that `close` waits for running calls, which it has interrupted"""


class _Add(NamedTuple):
    """A record that a task adds."""

    ev: Evervec
    kind: str
    data: Any
    options: Mapping[str, Any]
    context: contextvars.Context


class Runner:
    """The threads of one open store, for the event loop that opened it."""

    def __init__(self, ev: Evervec) -> None:
        own = ev.settings
        of_store = _LOCAL if ev.store.is_local else _REMOTE
        self.calls = LoopPool("async", own.async_threads or of_store)
        of_queries = _REMOTE if is_remote(ev.embedder) else _MODEL
        self.queries = LoopPool("query", own.async_query_threads or of_queries)
        self.reranked = LoopPool("rerank", _REMOTE)
        self.operations = LoopPool("operation", _LONG_OPERATIONS)
        self.waiter = AsyncTicketWaiter(ev.waiter, ev.store)
        self._ev = ev
        self._save = Batcher("async-save", self._save_all)
        self._loop = asyncio.get_running_loop()
        self._live: set[Deadline] = set()
        """of calls in progress, to interrupt them"""
        self._active = 0
        """tasks that await something of this store"""
        self._idle = asyncio.Event()
        self._closed = False
        self._closing: asyncio.Future[None] | None = None

    def check(self) -> None:
        """Raise an error if this store cannot be used here."""
        if self._closed:
            raise closed(self._ev.store.url)
        if asyncio.get_running_loop() is not self._loop:
            raise InvalidArgument(
                "this store was opened in another event loop: call evervec.aopen in the loop that "
                "uses it"
            )

    async def run(self, pool: LoopPool, tenant: str, do: Callable[[], T]) -> T:
        """The result of a blocking call in a thread of the pool."""
        self.check()
        outer = current()
        mine = Deadline(_NEVER) if outer is None else outer.branch()
        call = pool.submit(tenant, partial(_within, mine, do))
        self._begin(mine)
        try:
            return await call.future
        except asyncio.CancelledError:
            call.withdraw()
            mine.cancel(_CANCELLED)
            raise
        finally:
            self._end(mine)

    async def finish(self, pool: LoopPool, tenant: str, do: Callable[[], T]) -> T:
        """As `run`, but a call that has begun also ends before its task, if that is cancelled: for
        calls that use something of the caller."""
        self.check()
        call = pool.submit(tenant, do)
        self._begin()
        try:
            return await ended_first(call.future, call.withdraw)
        finally:
            self._end()

    async def join(self, caller: CallersConnection, do: Callable[[], T]) -> T:
        """The result of a call inside the caller's own transaction. A task that is cancelled ends
        after it."""
        self.check()
        self._begin()
        try:
            return await ended_first(asyncio.ensure_future(caller.run(do)))
        finally:
            self._end()

    def _begin(self, deadline: Deadline | None = None) -> None:
        self._active += 1
        if deadline is not None:
            self._live.add(deadline)

    def _end(self, deadline: Deadline | None = None) -> None:
        self._active -= 1
        if deadline is not None:
            self._live.discard(deadline)
        if self._closed and not self._active:
            self._idle.set()

    # saving
    async def save(self, ev: Evervec, kind: str, data: Any, options: Mapping[str, Any]) -> Ticket:
        """Save a record, together with those of other tasks."""
        self.check()
        self._begin()
        try:
            return await self._save(_Add(ev, kind, data, options, contextvars.copy_context()))
        finally:
            self._end()

    def _save_all(self, asked: Sequence[_Add]) -> list[Ticket | BaseException]:
        """A record that is invalid, or that the store rejects, fails alone."""
        answers: list[Ticket | BaseException | None] = [None] * len(asked)
        saves: dict[int, Save] = {}
        for place, (ev, kind, data, options, context) in enumerate(asked):
            try:
                draft = context.run(ev.draft, kind, data, options)
                saves[place] = Save(ev.tenant, kind, draft)
            except BaseException as error:  # noqa: BLE001 - raised by its task
                answers[place] = error
        changes = self._ev.store.changes
        saved = save_together(list(saves.values()), changes, self._save_group)
        for place, answer in zip(saves, saved, strict=True):
            answers[place] = answer
        return [answer for answer in answers if answer is not None]

    def _save_group(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any
    ) -> Sequence[Ticket | EvervecError]:
        self._ev.attachments.check_writable(kind)
        return list(save_each(self._ev.store.changes, tenant, kind, drafts, conn))

    # waiting
    async def wait(self, tenant: str, ticket: Ticket, seconds: float) -> Job:
        """The job of a change that is in the index. Raises `WaitTimeout` or `JobFailed`."""
        self.check()
        self._begin()
        try:
            end = await self.waiter.end_of(tenant, ticket, seconds)
        finally:
            self._end()
        read = partial(self._ev.waiter.job_of, tenant, ticket, seconds, end)
        return await self.run(self.calls, tenant, read)

    # ending
    async def close(self) -> None:
        """End all calls and close the store. If the task is cancelled meanwhile, the store is
        closed first."""
        self._closed = True
        self._closing = self._closing or asyncio.ensure_future(self._close())
        await uncancelled(self._closing)

    async def _close(self) -> None:
        why = closed(self._ev.store.url)
        self.waiter.release(why)
        for deadline in self._live:
            deadline.cancel(str(why))
        if self._active:
            with suppress(TimeoutError):  # of a call that hangs
                await asyncio.wait_for(self._idle.wait(), _PATIENCE)
        await asyncio.wrap_future(submit("evervec-close", self._close_threads))

    def _close_threads(self) -> None:
        for pool in (self.calls, self.reranked, self.operations, self.queries):
            pool.close(_PATIENCE)
        self._save.close()
        self.waiter.close()
        self._ev.close()


def _within(deadline: Deadline, do: Callable[[], T]) -> T:
    with bounded(deadline):
        deadline.check()
        return do()
