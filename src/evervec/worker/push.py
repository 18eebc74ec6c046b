"""Push mode: jobs go out as messages, for hosts where no worker can run permanently.

A scheduler calls `dispatch` periodically. Each round claims due jobs, each under its own token, and
sends them to the worker endpoint, through QStash or by a direct request where QStash is not
configured. The receiver of a message processes that one job with the same stages as any worker.
Messages may arrive twice, late or never: the token decides, and an expired lease returns the job to
the queue.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evervec.errors import EmbedderError, IndexUnavailable, ProviderUnavailable, StoreError
from evervec.indexes.base import patience
from evervec.maintenance.housekeeping import Housekeeping
from evervec.model.jobs import Job, Status
from evervec.runtime.threads import Pool
from evervec.settings import Settings
from evervec.telemetry.counters import DELIVERIES, DISPATCHED
from evervec.worker.pipeline import Pipeline
from evervec.worker.threads import Heartbeat

if TYPE_CHECKING:
    from evervec.worker.courier import Courier

log = logging.getLogger("evervec")

_PATIENCE = 10.0
"""seconds that a delivery waits for other writers of the index"""
_UNAVAILABLE = (StoreError, IndexUnavailable, EmbedderError)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The outcome of one round."""

    claimed: int = 0
    published: int = 0
    released: int = 0
    """given back at once, because the endpoint did not accept them"""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of one message. `status` is None if there was nothing to do: the token is no
    longer valid, or another delivery of the same message is being processed."""

    status: Status | None = None
    error: str | None = None


class Dispatcher:
    """Both ends of push mode over one store."""

    def __init__(
        self,
        pipeline: Pipeline,
        housekeeping: Housekeeping,
        starting: Iterator[int],
        migrate: Callable[[], int],
        settings: Settings,
    ) -> None:
        self._pipeline = pipeline
        self._store = pipeline.store
        self._queue = pipeline.queue
        self._housekeeping = housekeeping
        self._starting = starting
        self._migrate = migrate
        self._settings = settings
        self._tending = threading.Lock()
        self._next_sweep = 0.0

    # sending
    def dispatch(self, limit: int, url: str) -> Dispatched:
        """Run one round: claim up to `limit` jobs and send each to the worker endpoint of the
        service at `url`. Nothing is claimed while the provider is unavailable."""
        from evervec.worker.courier import Courier  # imported late: its HTTP client is slow to load

        self._tend()
        if not self._pipeline.ready():
            return Dispatched()
        with (
            Courier(url, self._settings) as courier,
            self._heartbeat() as heartbeat,  # for jobs that are sent late in the round
        ):
            jobs = self._claim(limit)  # claim all first: a released job is due again at once
            heartbeat.hold(jobs)
            pool = Pool(self._settings.concurrency)
            taken = sum(pool.map(lambda job: self._hand_over(courier, heartbeat, job), jobs))
        DISPATCHED.add(taken, "published")
        DISPATCHED.add(len(jobs) - taken, "released")
        return Dispatched(len(jobs), taken, len(jobs) - taken)

    def _claim(self, limit: int) -> list[Job]:
        """One claim per job, because all jobs of a claim share its token."""
        jobs: list[Job] = []
        try:
            while len(jobs) < limit and (claimed := self._pipeline.claim(1)):
                jobs += claimed
        except StoreError:
            if not jobs:  # otherwise the jobs claimed so far are sent first
                raise
        return jobs

    def _hand_over(self, courier: Courier, heartbeat: Heartbeat, job: Job) -> bool:
        taken = courier.hand_over(job)
        heartbeat.drop([job])
        if not taken:
            with suppress(StoreError):  # otherwise its lease expires
                self._queue.release_many([job])
        return taken

    def _heartbeat(self) -> Heartbeat:
        return Heartbeat(self._queue.renew_many, self._settings.lease_seconds / 3)

    def _tend(self) -> None:
        """The periodic tasks of a worker, because there may be no worker."""
        if not self._tending.acquire(blocking=False):
            return
        try:
            if self._housekeeping.anything_lost():
                self._housekeeping.recover()
            if next(self._starting, None) is None and not self._housekeeping.backfill_tables():
                self._migrate()
            if time.monotonic() >= self._next_sweep:
                self._next_sweep = time.monotonic() + self._settings.housekeeping_seconds
                self._housekeeping.sweep()
        finally:
            self._tending.release()

    # receiving
    def deliver(self, job_id: int, token: str) -> Delivered:
        """Process a job that was sent, if its token is still valid. When the provider, index or
        store is unavailable, the job is released without spending its attempt and the error is
        raised: the next round sends it again."""
        try:
            done = self._deliver(job_id, token)
        except _UNAVAILABLE as error:
            log.warning("job %d is released: %s", job_id, error, extra={"job_id": job_id})
            DELIVERIES.add(1, "away")
            raise
        DELIVERIES.add(1, done.status or "nothing")
        log.info("job %d was delivered: %s", job_id, done.status, extra={"job_id": job_id})
        return done

    def _deliver(self, job_id: int, token: str) -> Delivered:
        job = self._store.jobs.get(None, job_id)
        if job is None or job.status is not Status.PROCESSING or not _same(job.token, token):
            return Delivered()
        lock, holder = f"delivery {job_id}", secrets.token_hex(8)
        mine = self._store.shared.lock(lock, holder, self._settings.lease_seconds)
        if mine is None:
            return Delivered()
        try:
            return self._work(job) if self._queue.renew_many([job])[0] else Delivered()
        except _UNAVAILABLE:
            with suppress(StoreError):  # otherwise its lease expires
                self._queue.release_many([job])
            raise
        finally:
            with suppress(StoreError):
                self._store.shared.unlock(lock, mine)

    def _work(self, job: Job) -> Delivered:
        pipeline = self._pipeline
        if job.version not in pipeline.serves():
            raise ProviderUnavailable(
                f"this process cannot make vectors of {job.embedding_version!r}: open the store "
                "with the embedder of that version"
            )
        if not pipeline.ready():
            raise ProviderUnavailable("embedding is paused: see `evervec status`")
        with self._heartbeat() as heartbeat:
            heartbeat.hold([job])
            batch, _ = pipeline.prepare([job])
            pipeline.embed(batch)
            with patience(_PATIENCE):
                written = pipeline.write(batch)
        if batch.outage is not None:
            raise batch.outage
        if written.succeeded:
            return Delivered(Status.DONE)
        if written.errors and not written.lost:
            end = Status.FAILED if written.failed else Status.PENDING
            return Delivered(end, written.errors[0][1])
        return Delivered()


def _same(kept: str | None, given: str) -> bool:
    return kept is not None and hmac.compare_digest(kept.encode(), given.encode("utf-8", "replace"))
