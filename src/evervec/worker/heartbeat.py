"""Renews leases in a thread, so that a slow embedder cannot delay it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable

from evervec.errors import EvervecError
from evervec.model.jobs import Job

log = logging.getLogger("evervec")


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
        self.tend()
        return self

    def tend(self) -> None:
        """Start the thread if it is not running: without it every lease would expire."""
        if self._thread is None or not self._thread.is_alive():
            thread = threading.Thread(target=self._beat, name="evervec-lease", daemon=True)
            thread.start()
            self._thread = thread

    def __exit__(self, *_: object) -> None:
        self._stop.set()
