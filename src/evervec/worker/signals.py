"""A worker as the whole of a process: it ends, in good order, when the process is asked to."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from evervec.worker.worker import Worker


def run_until_signalled(worker: Worker) -> None:
    """Work until SIGTERM or SIGINT, then drain; a second one stops at once."""
    signals: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        # from a thread: a handler may interrupt anything, even another handler with a lock
        limit = 0.0 if signals else None
        signals.append(number)
        threading.Thread(target=worker.stop, args=(limit,), daemon=True).start()

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        worker.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
