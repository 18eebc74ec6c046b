"""What runs beside the requests of a service: its workers, and the care for its keys.

An application's lifespan starts and ends it. A server does not run the lifespan of an application
that is mounted in another, so the first request starts what does not run yet.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import threading
from contextlib import suppress

from evervec.server.requests import App, Receive, Scope, Send
from evervec.server.service import Service
from evervec.worker.worker import Worker

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
        for tend in (
            self._service.tend, self._service.revocations.tend, self._service.shares.tend,
        ):  # fmt: skip
            self._tending.append(loop.create_task(tend()))
        atexit.register(self._drain)  # where no lifespan does

    def trouble(self) -> str | None:
        """What a worker that should run inside does instead, such as `failing`; None when all is
        well."""
        if self._count and not self._started:
            return "stopped"
        return next(filter(None, (worker.trouble for worker in self._workers)), None)

    async def close(self) -> None:
        """After the last request."""
        for task in self._tending:
            task.cancel()
        # in a thread that nobody joins: one that hangs must not keep the process from ending
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def close() -> None:
            self._drain()
            self._service.close()
            with suppress(RuntimeError):  # nobody waits any more
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=close, name="evervec-close", daemon=True).start()
        await ended.wait()

    def stop(self, seconds: float) -> None:
        """Have workers take no more, and finish what they hold within so many seconds."""
        for worker in self._workers:
            worker.stop(seconds)

    def _drain(self) -> None:
        """Let workers finish what they hold, all at the same time."""
        atexit.unregister(self._drain)
        self.stop(self._service.ev.settings.drain_seconds)
        for worker in self._workers:
            if not worker.join():
                log.error("a worker does not end: its jobs wait for their leases to run out")


class Starting:
    """The layer that sees to it that everything runs before a request is answered."""

    def __init__(self, app: App, inside: Inside) -> None:
        self._app = app
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._inside.start()
        await self._app(scope, receive, send)
