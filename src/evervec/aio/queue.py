"""The queue of an asynchronous store: the methods of `Queue`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from evervec.aio.methods import Awaited, awaited, like, operated
from evervec.model.jobs import Job
from evervec.queue.queue import Queue
from evervec.runtime.loops import uncancelled


class AsyncQueue(Awaited[Queue]):
    """The jobs of one tenant, or of all tenants; see `Queue`."""

    @property
    def worker(self) -> str:
        """The name of this process as a worker."""
        return self._inner.worker

    enqueue = awaited(Queue.enqueue)
    enqueue_many = awaited(Queue.enqueue_many)
    content = awaited(Queue.content)
    peek = awaited(Queue.peek)
    finish = awaited(Queue.finish)
    finish_many = awaited(Queue.finish_many)
    fail = awaited(Queue.fail)
    fail_many = awaited(Queue.fail_many)
    release = awaited(Queue.release)
    release_many = awaited(Queue.release_many)
    postpone = awaited(Queue.postpone)
    renew = awaited(Queue.renew)
    renew_many = awaited(Queue.renew_many)
    stats = awaited(Queue.stats)
    status = awaited(Queue.status)
    history = awaited(Queue.history)
    failed = awaited(Queue.failed)
    jobs = awaited(Queue.jobs)
    timeline = awaited(Queue.timeline)
    jobs_where = awaited(Queue.jobs_where)
    retry_where = operated(Queue.retry_where)
    cancel_where = operated(Queue.cancel_where)
    set_priority_where = operated(Queue.set_priority_where)
    get = awaited(Queue.get)
    retry = awaited(Queue.retry)
    retry_failed = operated(Queue.retry_failed)
    recover_stuck = operated(Queue.recover_stuck)
    purge_done = operated(Queue.purge_done)
    purge_dead = operated(Queue.purge_dead)
    cancel = awaited(Queue.cancel)
    set_priority = awaited(Queue.set_priority)
    pause = awaited(Queue.pause)
    resume = awaited(Queue.resume)

    @like(Queue.claim)
    async def claim(self, *args: Any, **kwargs: Any) -> list[Job]:
        """Claim up to `limit` due jobs. Finish, fail, release or renew each before its lease
        expires. A task that is cancelled meanwhile claims none."""
        claimed: list[Job] = []

        def claim() -> None:
            claimed.extend(self._inner.claim(*args, **kwargs))

        try:
            await self._finish(claim)
        except asyncio.CancelledError:
            if claimed:
                release = partial(self._inner.release_many, claimed)
                await uncancelled(asyncio.ensure_future(self._finish(release)))
            raise
        return claimed

    async def _finish(self, do: Callable[[], object]) -> None:
        await self._runner.finish(self._runner.calls, self._tenant, do)
