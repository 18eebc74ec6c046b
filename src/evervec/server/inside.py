"""Background work of a service: its workers, and tasks for keys and shares.

The application's lifespan starts and ends it. Servers do not run the lifespan of a mounted
application, so the first request starts what is not running yet.
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
    """`count` workers in threads of this process, and background tasks."""

    def __init__(self, service: Service, count: int) -> None:
        self._service = service
        self._count = count
        self._workers: list[Worker] = []
        self._tending: list[asyncio.Task[None]] = []
        self._started = False

    def start(self) -> None:
        """Start everything, once; called in the event loop."""
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
        atexit.register(self._drain)  # if no lifespan does it

    def trouble(self) -> str | None:
        """The state of a worker that does not work, such as `failing`; None: all work."""
        if self._count and not self._started:
            return "stopped"
        return next(filter(None, (worker.trouble for worker in self._workers)), None)

    async def close(self) -> None:
        """Stop everything, after the last request."""
        for task in self._tending:
            task.cancel()
        # in a daemon thread: if it hangs, the process can still exit
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def close() -> None:
            self._drain()
            self._service.close()
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=close, name="evervec-close", daemon=True).start()
        await ended.wait()

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
                log.error("a worker does not stop: its jobs wait until their leases expire")


class Starting:
    """Middleware that starts the background work before the first request is handled."""

    def __init__(self, app: App, inside: Inside) -> None:
        self._app = app
        self._inside = inside

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self._inside.start()
        await self._app(scope, receive, send)
