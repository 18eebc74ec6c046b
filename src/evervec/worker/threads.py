"""The threads of a worker: some make its provider calls, and one renews its leases.

They are daemons: a call that hangs cannot keep the process from exiting, nor delay a renewal.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from evervec.errors import EvervecError
from evervec.model.jobs import Job
from evervec.runtime.threads import start
from evervec.worker.batch import Batch, Call
from evervec.worker.pipeline import Pipeline

log = logging.getLogger("evervec")

_Waiting = deque[tuple[Batch, deque[range]]]


class Calls:
    """Makes up to `count` calls at once, batch by batch. Oversize batches alternate with the
    others."""

    def __init__(self, pipeline: Pipeline, count: int, stopping: Callable[[], bool]) -> None:
        self.done: queue.SimpleQueue[tuple[Batch, Call | None] | None] = queue.SimpleQueue()
        """calls that ended; None in place of a `Call` that was skipped because of an outage"""
        self._pipeline = pipeline
        self._count = count
        self._stopping = stopping
        self._ordinary: _Waiting = deque()
        self._oversize: _Waiting = deque()
        self._next = self._ordinary
        self._changed = threading.Condition()
        self._closed = False
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads; raises RuntimeError if none can be started."""
        while len(self._threads) < self._count:
            self._threads.append(start(f"evervec-call-{len(self._threads)}", self._work))

    def restart_dead(self) -> None:
        """Restart threads that died."""
        if not all(thread.is_alive() for thread in self._threads):
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            self.start()

    def submit(self, batch: Batch, calls: Sequence[range]) -> None:
        with self._changed:
            (self._oversize if batch.oversize else self._ordinary).append((batch, deque(calls)))
            self._changed.notify(len(calls))  # all would compete with each other for the GIL

    def close(self) -> None:
        """Start no more calls."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while (task := self._take()) is not None:
            batch, rows = task
            began = time.time_ns()
            call = None
            try:
                if batch.outage is None:
                    call = self._pipeline.call(batch, rows, self._stopping)
            except BaseException as error:  # noqa: BLE001 - the batch must be returned
                outage = RuntimeError(f"a provider call was interrupted by {error!r}")
                call = Call(rows, began, time.time_ns(), outage=outage)
            finally:
                self.done.put((batch, call))

    def _take(self) -> tuple[Batch, range] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._ordinary or self._oversize or self._closed)
            if self._closed:
                return None
            waiting = self._next or self._ordinary or self._oversize
            self._next = self._ordinary if waiting is self._oversize else self._oversize
            batch, calls = waiting[0]
            rows = calls.popleft()
            if not calls:
                waiting.popleft()
            return batch, rows


class Heartbeat:
    """Renews the leases of claimed jobs from its own thread."""

    def __init__(self, renew: Callable[[list[Job]], object], every: float) -> None:
        self._renew = renew
        self._every = every
        self._held: dict[tuple[int, str | None], Job] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, jobs: Iterable[Job]) -> None:
        with self._lock:
            self._held.update(((job.job_id, job.token), job) for job in jobs)

    def drop(self, jobs: Iterable[Job]) -> None:
        with self._lock:
            for job in jobs:
                self._held.pop((job.job_id, job.token), None)

    def _beat(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.beat()
            except EvervecError as error:
                log.warning("leases could not be renewed: %s", error)
            except Exception:  # if the thread ended, every lease would expire
                log.exception("leases could not be renewed")

    def beat(self) -> None:
        """Renew all held leases now."""
        with self._lock:
            jobs = list(self._held.values())
        if jobs:
            self._renew(jobs)

    def __enter__(self) -> Heartbeat:
        self.ensure_running()
        return self

    def ensure_running(self) -> None:
        """Start the thread if it is not running: without it every lease would expire."""
        if self._thread is None or not self._thread.is_alive():
            self._thread = start("evervec-lease", self._beat)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
