"""Runs a worker as a process that shuts down cleanly on a signal."""

from __future__ import annotations

import signal
from types import FrameType

from evervec.runtime.threads import start
from evervec.worker.worker import Worker


def run_until_signalled(worker: Worker) -> None:
    """Run until SIGTERM or SIGINT, then drain; a second signal stops at once."""
    signals: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        # in a thread: a signal handler may interrupt code that holds a lock, even another handler
        limit = 0.0 if signals else None
        signals.append(number)
        start("evervec-stop", worker.stop, limit)

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        worker.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
