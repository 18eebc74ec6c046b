"""How a worker appears in the list of workers, and obeys what an operator tells it there."""

from __future__ import annotations

import time
from contextlib import suppress

from evervec.errors import StoreError
from evervec.runtime.release import release
from evervec.worker.pipeline import Pipeline

_REPORT_SECONDS = 10.0


class Presence:
    """One running worker in the store's list."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._workers = pipeline.store.workers
        self._name = pipeline.queue.worker
        self._next_report = 0.0
        self.paused = False
        """it was told to claim nothing"""

    def read_orders(self) -> None:
        self.paused = self._workers.is_paused(self._name)

    def report_if_due(self, held: int, done: int) -> None:
        """Report every ten seconds the jobs that it has, and those that ended."""
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + _REPORT_SECONDS
            self._workers.beat(self._name, version=release(), held=held, done=done)

    def leave(self) -> None:
        with suppress(StoreError):
            self._workers.leave(self._name)
