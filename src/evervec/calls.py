"""Threads that make a worker's provider calls."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from evervec.batch import Batch
from evervec.pipeline import Pipeline


class Calls:
    """So many at once. The threads are daemons: one that hangs cannot keep the process from
    ending."""

    def __init__(self, count: int, stopping: Callable[[], bool]) -> None:
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._count = count
        self._stopping = stopping

    def start(self) -> None:
        for number in range(self._count):
            threading.Thread(target=self._work, name=f"evervec-call-{number}", daemon=True).start()

    def _work(self) -> None:
        while task := self._tasks.get():
            task()

    def submit(self, pipeline: Pipeline, batch: Batch, rows: range) -> None:
        def task() -> None:
            try:
                if batch.outage is None:
                    pipeline.call(batch, rows, self._stopping)
            except BaseException as error:  # noqa: BLE001 - the batch must come back in any case
                for row in rows:
                    batch.errors.setdefault(row, _as_exception(error))
            finally:
                self.done.put(batch)

        self._tasks.put(task)

    def close(self) -> None:
        for _ in range(self._count):
            self._tasks.put(None)


def _as_exception(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))
