"""What runs beside the requests of a service: its workers, and the care for its keys.

An application's lifespan starts and ends it. A server does not run the lifespan of an application
that is mounted in another, so the first request starts what does not run yet.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
from contextlib import suppress

from evervec.errors import EvervecError
from evervec.server.requests import App, Receive, Scope, Send
from evervec.server.service import Service
from evervec.worker import Worker

log = logging.getLogger("evervec.server")


class Inside:
    """So many workers, in the threads of this process."""

    def __init__(self, service: Service, count: int) -> None:
        self._service = service
        self._count = count
        self._workers: list[Worker] = []
        self._tending: list[asyncio.Task[None]] = []
        self._started = False

    def start(self) -> None:
        """Start what was not started before; called in the event loop."""
        if self._started:
            return
        self._started = True
        for _ in range(self._count):
            self._workers.append(self._service.ev.worker().__enter__())
        loop = asyncio.get_running_loop()
        for tend in (self._service.tend, self._service.revocations.tend):
            self._tending.append(loop.create_task(tend()))
        atexit.register(self._drain)  # where no lifespan does

    def check(self) -> None:
        """Raise unless as many workers run as there should be."""
        running = sum(worker.running for worker in self._workers)
        if running < self._count:
            raise EvervecError(f"{running} of {self._count} workers inside run: see the log")

    async def close(self) -> None:
        """After the last request."""
        for task in self._tending:
            task.cancel()
        await asyncio.to_thread(self._drain)
        await asyncio.to_thread(self._service.close)

    def _drain(self) -> None:
        """Let workers finish what they hold, all at the same time."""
        atexit.unregister(self._drain)
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            with suppress(Exception):  # it is in the log already
                worker.__exit__()


class Starting:
    """The layer that sees to it that everything runs before a request is answered."""

    def __init__(self, app: App, inside: Inside) -> None:
        self._app = app
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._inside.start()
        await self._app(scope, receive, send)
