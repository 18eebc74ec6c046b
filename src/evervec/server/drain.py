"""Shutdown of a service within `drain_seconds` of the signal.

Requests may finish during the first part of that time, then they are aborted. Workers drain
meanwhile. A thread that still hangs (in a driver, or on a disk) does not delay the exit: nothing
acknowledged depends on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable

from evervec.server.inside import Inside
from evervec.server.service import Service

log = logging.getLogger("evervec.server")

_REQUESTS, _WORKERS = 0.6, 0.85
"""fractions of the time after which requests are aborted and workers no longer awaited"""
_LEAST = 1.0
"""seconds, however short `drain_seconds` is"""


class Drain:
    """The shutdown of one service."""

    def __init__(
        self,
        service: Service,
        inside: Inside,
        *,
        whole_process: bool,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """`whole_process`: exit the process when the time is over."""
        self._service = service
        self._inside = inside
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
        args = (loop, seconds)
        threading.Thread(target=self._run, args=args, name="evervec-drain", daemon=True).start()

    def _run(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        began = time.monotonic()

        def until(share: float) -> None:
            time.sleep(max(0.0, began + seconds * share - time.monotonic()))

        self._inside.stop(seconds * _WORKERS)
        until(_REQUESTS)
        try:
            loop.call_soon_threadsafe(self._break_off)
        except RuntimeError:  # the loop is closed, so no requests are left
            log.debug("all requests ended in time")
        until(1.0)
        if self._whole_process:
            log.error(
                "the service exits while some work does not stop; nothing acknowledged is lost"
            )
            self._leave(0)

    def _break_off(self) -> None:
        if self._service.calls:
            log.warning(
                "drain_seconds is nearly over: aborting %d requests",
                len(self._service.calls),
                extra={"count": len(self._service.calls)},
            )
            self._service.break_off()
