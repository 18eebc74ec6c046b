"""Work beside the requests: the service's workers, tasks for keys and shares, the load of the index, and
shutdown.

The application's lifespan starts and ends it. Servers do not run the lifespan of a mounted
application, so the first request starts what is not running yet.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from evervec.runtime.threads import start, submit
from evervec.server.service import Service
from evervec.worker.worker import Worker

log = logging.getLogger("evervec.server")

_REQUESTS, _WORKERS = 0.6, 0.85
"""fractions of `drain_seconds` after which requests are aborted and workers no longer awaited"""
_LEAST = 1.0
"""seconds for a shutdown, however short `drain_seconds` is"""


class Background:
    """`count` workers in threads of this process, and periodic tasks."""

    def __init__(self, service: Service, count: int) -> None:
        self._service = service
        self._count = count
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._started = False
        self.aborted = 0
        """requests that were aborted because the time for the shutdown was over"""
        self.hanging = 0
        """workers that did not stop in time"""

    @property
    def jobs_done(self) -> int:
        """Jobs that this process's workers have ended."""
        return sum(worker.processed for worker in self._workers)

    def start(self) -> None:
        """Start everything, once; called in the event loop."""
        if self._started:
            return
        self._started = True
        for _ in range(self._count):
            self._workers.append(self._service.ev.worker().__enter__())
        loop = asyncio.get_running_loop()
        service = self._service
        for task in (service.maintain, service.revocations.watch, service.shares.measure_lag):
            self._tasks.append(loop.create_task(task()))
        service.index_loader.start()
        atexit.register(self._drain)  # if no lifespan does it

    @asynccontextmanager
    async def lifespan(self, _: object) -> AsyncIterator[None]:
        """The lifespan of the application."""
        self.start()
        try:
            yield
        finally:
            await self.close()

    def trouble(self) -> str | None:
        """The state of a worker that does not work, such as `failing`; None: all work."""
        if self._count and not self._started:
            return "stopped"
        return next(filter(None, (worker.trouble for worker in self._workers)), None)

    async def close(self) -> None:
        """Stop everything, after the last request."""
        for task in self._tasks:
            task.cancel()
        await self._service.verifications.close()
        # in a daemon thread: if it hangs, the process can still exit
        await asyncio.wrap_future(submit("evervec-close", self._end))

    def _end(self) -> None:
        self._drain()
        self._service.close()

    def stop(self, seconds: float) -> None:
        """Stop workers from claiming; they finish their jobs within `seconds`."""
        for worker in self._workers:
            worker.stop(seconds)

    def _drain(self) -> None:
        """Let all workers finish their jobs, in parallel."""
        atexit.unregister(self._drain)
        self.stop(self._service.ev.settings.drain_seconds)
        for worker in self._workers:
            if not worker.join():
                self.hanging += 1
                log.error("a worker does not stop: its jobs wait until their leases expire")


class Drain:
    """Shutdown of a service within `drain_seconds` of the signal.

    Requests may finish during the first part of that time, then they are aborted. Workers drain
    meanwhile. A thread that still hangs (in a driver, or on a disk) does not delay the exit:
    nothing acknowledged depends on it.
    """

    def __init__(
        self,
        service: Service,
        background: Background,
        *,
        whole_process: bool,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """`whole_process`: exit the process when the time is over."""
        self._service = service
        self._background = background
        self._seconds = max(_LEAST, service.ev.settings.drain_seconds)
        self._whole_process = whole_process
        self._leave = leave
        self._began = False

    @property
    def for_requests(self) -> int:
        """Whole seconds for which the server waits for requests."""
        return max(1, round(self._seconds * _WORKERS))

    def begin(self) -> None:
        """Called by a signal handler in the event loop's thread; the second call shuts down at
        once."""
        self._service.stopping.set()
        seconds, self._began = 0.0 if self._began else self._seconds, True
        loop = asyncio.get_running_loop()
        # in a thread: the handler may have interrupted code that holds a lock
        start("evervec-drain", self._run, loop, seconds)

    def _run(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        began = time.monotonic()

        def until(share: float) -> None:
            time.sleep(max(0.0, began + seconds * share - time.monotonic()))

        self._background.stop(seconds * _WORKERS)
        until(_REQUESTS)
        try:
            loop.call_soon_threadsafe(self._abort_requests)
        except RuntimeError:  # the loop is closed, so no requests are left
            log.debug("all requests ended in time")
        until(1.0)
        if self._whole_process:
            log.error(
                "the service exits while some work does not stop; nothing acknowledged is lost"
            )
            self._leave(0)

    def _abort_requests(self) -> None:
        if count := len(self._service.calls):
            text = "drain_seconds is nearly over: aborting %d requests"
            log.warning(text, count, extra={"count": count})
            self._background.aborted += count
            self._service.abort_requests()
