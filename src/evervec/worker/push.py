"""Push mode: jobs go out as messages, for hosts where no worker can run permanently.

A scheduler calls `dispatch` periodically. Each round claims due jobs, each under its own token, and
sends them to the worker endpoint, through QStash or by a direct request where QStash is not
configured. The receiver of a message processes that one job with the same stages as any worker.
Messages may arrive twice, late or never: the token decides, and an expired lease returns the job to
the queue.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import secrets
import threading
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from evervec.errors import (
    EmbedderError,
    IndexUnavailable,
    ProviderUnavailable,
    SettingsError,
    StoreError,
)
from evervec.indexes.base import patience
from evervec.maintenance.housekeeping import Upkeep
from evervec.model.jobs import Job, Status
from evervec.runtime.threads import Pool
from evervec.settings import Settings
from evervec.telemetry.counters import DELIVERIES, DISPATCHED
from evervec.telemetry.visible import without_secrets
from evervec.worker.pipeline import Pipeline
from evervec.worker.threads import Heartbeat

if TYPE_CHECKING:
    from evervec.runtime.http import Connections

log = logging.getLogger("evervec")

WORKER_PATH = "/internal/worker"
_QSTASH = "https://qstash.upstash.io"
_CONNECT_SECONDS = 10.0
_PATIENCE = 10.0
"""seconds that a delivery waits for other writers of the index"""
_ONCE_SECONDS = 86400.0
"""for which a token is worked on by one delivery only, however long that takes: two that held the same
token at once could each write to the index, and neither would notice"""
_UNAVAILABLE = (StoreError, IndexUnavailable, EmbedderError)


@dataclass(frozen=True, slots=True)
class Dispatched:
    """The outcome of one round."""

    claimed: int = 0
    published: int = 0
    released: int = 0
    """released at once, because the endpoint did not accept them"""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The outcome of one message."""

    status: Status | None = None
    """None: nothing to do, because the token is no longer valid or the same delivery is in
    progress; pending: the record failed, and will be retried"""
    error: str | None = None
    """why the record failed, if it did"""


class Dispatcher:
    """Both ends of push mode over one store."""

    def __init__(self, pipeline: Pipeline, upkeep: Upkeep, settings: Settings) -> None:
        self._pipeline = pipeline
        self._store = pipeline.store
        self._queue = pipeline.queue
        self._upkeep = upkeep
        self._settings = settings
        self._upkeep_lock = threading.Lock()

    # sending
    def dispatch(self, limit: int, url: str) -> Dispatched:
        """Run one round: claim up to `limit` jobs and send each to the worker endpoint of the
        service at `url`. Nothing is claimed while the provider is unavailable."""
        self._do_upkeep()
        if not self._pipeline.probe_providers():
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

    def _do_upkeep(self) -> None:
        """The periodic tasks of a worker, because there may be no worker."""
        if not self._upkeep_lock.acquire(blocking=False):
            return
        try:
            self._upkeep.recover()
            self._upkeep.backfill()
            self._upkeep.sweep()
        finally:
            self._upkeep_lock.release()

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
        lock = f"delivery {job_id} {token}"
        mine = self._store.shared.lock(lock, secrets.token_hex(8), _ONCE_SECONDS)
        if mine is None:
            return Delivered()
        try:
            done = self._work(job) if self._queue.renew_many([job])[0] else Delivered()
        except _UNAVAILABLE:
            with suppress(StoreError):  # otherwise its lease expires
                self._queue.release_many([job])
                self._store.shared.unlock(lock, mine)
            raise
        with suppress(StoreError):
            self._store.shared.unlock(lock, mine)
        return done

    def _work(self, job: Job) -> Delivered:
        pipeline = self._pipeline
        if job.version not in pipeline.served.refresh():
            raise ProviderUnavailable(
                f"this process cannot make vectors of {job.embedding_version!r}: open the store "
                "with the embedder of that version"
            )
        if not pipeline.probe_providers():
            raise ProviderUnavailable("embedding is paused: see `evervec status`")
        with self._heartbeat() as heartbeat:
            heartbeat.hold([job])
            batch, _ = pipeline.prepare([job])
            pipeline.embed(batch)
            with patience(_PATIENCE):
                written = pipeline.write(batch)
        pipeline.queue.recorder.flush()  # this process may be frozen until the next delivery
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


def configured(settings: Settings, name: str) -> str:
    """A setting of push mode; falls back to the environment variable with its name in capitals."""
    return getattr(settings, name) or os.environ.get(name.upper(), "")


class Courier:
    """Delivers jobs to the worker endpoint of one service."""

    def __init__(self, url: str, settings: Settings) -> None:
        # a direct request is answered only when the job is done
        self._seconds = settings.lease_seconds
        worker_url = url.rstrip("/") + WORKER_PATH
        secret = configured(settings, "worker_secret")
        self._worker = _connections(worker_url, {"x-worker-secret": secret} if secret else {})
        self._qstash = None
        if token := configured(settings, "qstash_token"):
            qstash = (configured(settings, "qstash_url") or _QSTASH).rstrip("/")
            publish_url = f"{qstash}/v2/publish/{worker_url}"
            self._qstash = _connections(publish_url, {"Authorization": f"Bearer {token}"})

    def __enter__(self) -> Courier:
        return self

    def __exit__(self, *_: object) -> None:
        for connections in (self._worker, self._qstash):
            if connections is not None:
                connections.close()

    def hand_over(self, job: Job) -> bool:
        """Whether the job was accepted, by QStash or by the worker endpoint."""
        if self._qstash is not None:
            once = quote(f"{job.kind}:{job.record_id}:{job.token}", safe=":/@+,=")
            headers = {"Upstash-Deduplication-Id": once}
            if self._accepts("QStash", self._qstash, job, headers, late=False):
                return True
        # if it does not answer in time, it may still be processing the job: the lease decides
        return self._accepts("the worker endpoint", self._worker, job, {}, late=True)

    def _accepts(
        self, whom: str, at: Connections, job: Job, headers: dict[str, str], *, late: bool
    ) -> bool:
        """Whether a job was accepted; `late` if there was no answer in time."""
        from evervec.runtime.http import HttpFailure

        body = json.dumps({"job_id": job.job_id, "token": job.token}).encode()
        try:
            status = at.exchange("POST", "", body, self._seconds, headers).status
        except (HttpFailure, TimeoutError) as error:
            in_doubt = late and isinstance(error, TimeoutError)
            return in_doubt or _log_undelivered(whom, job, type(error).__name__)
        return 200 <= status < 300 or _log_undelivered(whom, job, f"status {status}")


def _connections(url: str, headers: dict[str, str]) -> Connections:
    from evervec.runtime.http import Connections  # imported late: it takes 70 ms to load

    try:
        return Connections(url, headers, _CONNECT_SECONDS)
    except ValueError as error:
        shown = without_secrets(url)
        raise SettingsError(f"jobs cannot be sent to {shown}: {error}") from None


def _log_undelivered(whom: str, job: Job, why: str) -> bool:
    log.warning(
        "job %d could not be sent to %s: %s", job.job_id, whom, why,
        extra={"job_id": job.job_id},
    )  # fmt: skip
    return False
