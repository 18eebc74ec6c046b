"""The end of a service: within `drain_seconds` of the signal, whatever is under way.

Requests have the first part of that time to end by themselves, then they are broken off.
Workers drain meanwhile. A thread that does not come back even then (a driver that hangs, a disk
that does not answer) cannot hold the process up: nothing acknowledged depends on it.
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
"""the parts of the time after which requests are broken off and workers left to themselves"""
_LEAST = 1.0
"""seconds, however short the drain is: to say good-bye takes some"""


class Drain:
    """One service's end."""

    def __init__(
        self,
        service: Service,
        inside: Inside,
        *,
        whole_process: bool,
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        """`whole_process`: end it when the time is over."""
        self._service = service
        self._inside = inside
        self._seconds = max(_LEAST, service.ev.settings.drain_seconds)
        self._whole_process = whole_process
        self._leave = leave
        self._began = False

    @property
    def for_requests(self) -> int:
        """Whole seconds after which a server should wait no longer for requests."""
        return max(1, round(self._seconds * _WORKERS))

    def begin(self) -> None:
        """Called by a signal handler in the event loop's thread; the second time it ends at
        once."""
        self._service.stopping.set()
        seconds, self._began = 0.0 if self._began else self._seconds, True
        loop = asyncio.get_running_loop()
        # from a thread: the handler may have interrupted whoever holds a lock
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
        except RuntimeError:  # the loop has ended: so have the requests
            log.debug("all requests ended in time")
        until(1.0)
        if self._whole_process:
            log.error(
                "the service ends with work under way that does not stop; nothing that was "
                "acknowledged is lost"
            )
            self._leave(0)

    def _break_off(self) -> None:
        if self._service.calls:
            log.warning(
                "the time to drain is nearly over: %d requests are broken off",
                len(self._service.calls),
                extra={"count": len(self._service.calls)},
            )
            self._service.break_off()
