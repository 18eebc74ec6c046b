"""What operators and callers ask of the jobs and do with them: lists, counts, retry, cancel, pause."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import InvalidArgument
from evervec.model.basics import as_seconds
from evervec.model.basics import moment as moment_of
from evervec.model.bounds import BIGGEST, MOST_HISTORY, check_limit, check_whole
from evervec.model.job_filters import MOST_CHANGED, JobFilter, read_status
from evervec.model.jobs import Attempt, Job, Status, TimelineEvent
from evervec.model.records import Content
from evervec.model.reports import Stats
from evervec.queue.recorder import Recorder
from evervec.queue.timeline import MOST_ATTEMPTS, timeline_of
from evervec.records.drafts import LONGEST_ID, check_name, check_when, existing_id
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft
from evervec.telemetry.counters import ATTEMPTS, DEAD_LETTERS

log = logging.getLogger("evervec")


def worker_name() -> str:
    """The name of this process as a worker: host and process id."""
    return f"{socket.gethostname()}:{os.getpid()}"


@dataclass(eq=False, repr=False)
class JobManagement:
    """The jobs of one store, limited to one tenant (or all tenants, with None), as they are read and
    managed."""

    _store: Store
    _settings: Settings
    _tenant: str | None
    _kinds: Mapping[str, Kind]
    _models: EmbedderRegistry
    _content: Callable[[Job], Content | None]
    recorder: Recorder
    """counts what its jobs come to"""
    worker: str = field(default_factory=worker_name, init=False)

    # reading
    def stats(self) -> Stats:
        providers = [model.provider for model in self._models]
        gates = (provider.gate() for provider in providers)
        spending = self._models.spending
        return replace(
            self._store.jobs.stats(self._tenant),
            in_flight=sum(provider.in_flight for provider in providers),
            gate=next((gate for gate in gates if gate), None),
            capped=spending.capped(),
            spent_today=spending.today(self._tenant),
        )

    def status(self, kind: str, id: str | int) -> Job | None:
        """The record's job, or None when it has none."""
        check_name("kind", kind)
        found = self._store.jobs.page(self._tenant, kind=kind, id=existing_id(id), limit=1)
        return found[0] if found else None

    def history(self, kind: str, id: str | int) -> list[Attempt]:
        """The attempts for a record, oldest first: the latest 1,000."""
        check_name("kind", kind)
        return self._store.jobs.history(self._one_tenant(), kind, existing_id(id), MOST_HISTORY)

    def _one_tenant(self) -> str:
        if self._tenant is None:
            raise InvalidArgument("this needs a tenant: use the queue of one tenant")
        return self._tenant

    def failed(self, limit: int = 100) -> list[Job]:
        """Dead letters, latest first."""
        return self.jobs(status=Status.FAILED, limit=limit)

    def jobs(
        self,
        *,
        status: str | None = None,
        kind: str | None = None,
        id: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """List jobs in the order of their status, or with `after` in order of job id, starting
        behind it."""
        wanted = None if status is None else read_status(status)
        check_limit(limit)
        if after is not None:
            check_whole("after", after, 0, BIGGEST)
        if kind is not None:
            check_name("kind", kind)
        if id is not None:
            check_name("id", id, LONGEST_ID)
        return self._store.jobs.page(
            self._tenant, status=wanted, kind=kind, id=id, after=after, limit=limit
        )

    def get(self, job_id: int) -> Job | None:
        return self._store.jobs.get(self._tenant, _job_id(job_id))

    def timeline(self, job_id: int) -> list[TimelineEvent]:
        """The way of a job's latest change, in order: when it was saved, claimed, embedded and
        searchable, attempt by attempt (the latest 100), with the seconds between. Empty if there
        is no such job."""
        job = self.get(job_id)
        if job is None:
            return []
        saved, attempts = self._store.jobs.way(job, MOST_ATTEMPTS)
        return timeline_of(job, saved, attempts, moment_of(self._store.now()))

    # many at once
    def jobs_where(
        self, filter: JobFilter, *, before: int | None = None, limit: int = 100
    ) -> list[Job]:
        """The jobs that fit a filter, the newest first (by number). `before`: those with smaller
        numbers, to continue after the last page. A page searches at most 10,000 jobs of each
        status, however many there are: the next to be claimed, all that are in progress, the latest
        failed ones, and of those that are done the newest by number and, of a tenant, those of its
        first 10,000 records (of `kind`, with that `prefix`)."""
        check_limit(limit)
        if before is not None:
            check_whole("before", before, 0, BIGGEST)
        return self._store.selection.find(self._tenant, _filter(filter), before, limit)

    def retry_where(self, filter: JobFilter, *, dry_run: bool = False) -> int:
        """Restart the failed jobs that fit a filter, at most 10,000 in one call; returns how many.
        Those that are searched are said in `jobs_where`."""
        wanted = _filter(filter).limited_to(Status.FAILED)
        return self._store.selection.retry(self._tenant, wanted, MOST_CHANGED, dry_run=dry_run)

    def cancel_where(self, filter: JobFilter, *, dry_run: bool = False) -> int:
        """Remove the pending and failed jobs that fit a filter, at most 10,000 in one call; returns
        how many. Their history stays."""
        wanted = _filter(filter).limited_to(Status.PENDING, Status.FAILED)
        return self._store.selection.cancel(self._tenant, wanted, MOST_CHANGED, dry_run=dry_run)

    def set_priority_where(self, filter: JobFilter, n: int, *, dry_run: bool = False) -> int:
        """Change the priority of the pending jobs that fit a filter to `n`, at most 10,000 in one
        call; returns how many."""
        wanted, priority = _filter(filter).limited_to(Status.PENDING), _priority(n)
        return self._store.selection.set_priority(
            self._tenant, wanted, priority, MOST_CHANGED, dry_run=dry_run
        )

    # maintenance
    def retry(self, job_id: int) -> None:
        """Restart a failed job: no attempts spent, no error."""
        self._store.jobs.retry(self._tenant, _job_id(job_id))

    def retry_failed(self, max_retries: int | None = None) -> int:
        """Restart all failed jobs, or those with fewer attempts than `max_retries`."""
        if max_retries is not None:
            check_whole("max_retries", max_retries, 0, BIGGEST)
        return self._store.jobs.retry_failed(self._tenant, max_retries)

    def recover_stuck(
        self, threshold: float | timedelta | None = None, *, own: bool = False
    ) -> int:
        """Take back jobs whose lease has expired, or that were claimed longer ago than `threshold`;
        the crash counts as an attempt. Covers all tenants, as workers do, or with `own` this tenant
        only."""
        tenant = self._tenant if own else None
        if isinstance(threshold, timedelta):
            threshold = threshold.total_seconds()
        count = 0
        while recovered := self._store.leases.recover(threshold=threshold, tenant=tenant):
            count += len(recovered)
            ATTEMPTS.add(len(recovered), "crashed")
            self.recorder.failed((job, job.error or "", job.status) for job in recovered)
            for job in recovered:
                if job.status is Status.FAILED:
                    report_dead(job, job.error or "")
        return count

    def purge_done(self, older_than: timedelta | datetime) -> int:
        """Purge done jobs; their records and vectors stay."""
        return self._purge(Status.DONE, older_than)

    def purge_dead(self, older_than: timedelta | datetime, boxed: bool = False) -> int:
        """Purge dead letters; those that carry a boxed record only if `boxed`."""
        return self._purge(Status.FAILED, older_than, boxed=boxed)

    def _purge(self, status: Status, older_than: timedelta | datetime, boxed: bool = False) -> int:
        before, total = moment(older_than, self._store.now), 0
        while count := self._store.jobs.purge(status, before, tenant=self._tenant, boxed=boxed):
            total += count
        return total

    def cancel(self, job_id: int) -> None:
        """Remove a pending or failed job; its history stays."""
        self._store.jobs.cancel(self._tenant, _job_id(job_id))

    def set_priority(self, job_id: int, n: int) -> None:
        self._store.jobs.set_priority(self._tenant, _job_id(job_id), _priority(n))

    def pause(self, *, own: bool = False) -> None:
        """Stop claims by all workers of the store until `resume`; claimed jobs are finished. Covers
        all tenants, because claims do, or with `own` this tenant only."""
        self._store.jobs.set_paused(True, self._tenant if own else None)

    def resume(self, *, own: bool = False) -> None:
        """Allow claims again: end the pause of all tenants, or with `own` of this tenant."""
        self._store.jobs.set_paused(False, self._tenant if own else None)


def report_dead(job: Job, error: str) -> None:
    DEAD_LETTERS.add(1)
    log.error(
        "Embedding failed permanently: %s %r after %d attempts: %s",
        job.kind, job.record_id, job.attempts, error,
        extra={
            "job_id": job.job_id, "tenant": job.tenant, "kind": job.kind,
            "record_id": job.record_id, "attempts": job.attempts, "error": error,
        },
    )  # fmt: skip


def moment(older_than: timedelta | datetime, now: Callable[[], float]) -> float:
    if isinstance(older_than, timedelta):
        return now() - older_than.total_seconds()
    if isinstance(older_than, datetime):
        return as_seconds(older_than)
    raise InvalidArgument(f"older_than must be a timedelta or a datetime, not {older_than!r}")


def _job_id(given: Any) -> int:
    return check_whole("a job's number", given, 0, BIGGEST)


def _priority(n: int | None) -> int:
    if n is None:
        raise InvalidArgument("priority must be a whole number, not None")
    return check_when(Draft("", "", b""), n, None, None).priority


def _filter(given: JobFilter) -> JobFilter:
    if not isinstance(given, JobFilter):
        raise InvalidArgument(f"filter must be an evervec.JobFilter, not {type(given).__name__}")
    return given
