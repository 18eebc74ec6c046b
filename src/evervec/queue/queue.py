"""The queue: leases, attempts and priorities over any store.

Callers may work the queue themselves (claim, then finish, fail or release); evervec's workers do
the same, in batches. Only the holder of a job's token may end it; any other caller gets
`LeaseLost`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, islice
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord, LeaseLost
from evervec.model.bounds import check_limit
from evervec.model.jobs import EnqueueResult, Job, Op, Status
from evervec.model.records import Content
from evervec.queue.management import JobManagement, report_dead
from evervec.records.drafts import are_plain_ids, check_name, check_when, existing_id
from evervec.runtime.backoff import backoff
from evervec.stores.values import Draft, Failure, Finish

log = logging.getLogger("evervec")

_BATCH = 5000
_POSTPONED = 30.0
"""seconds until a job that this process could not do is tried again"""
NOT_READ = Content(None, "", {}, 1.0)
"""Default of `finish`: the job's content was not read."""


@dataclass(eq=False, repr=False)
class Queue(JobManagement):
    """The jobs of one store, limited to one tenant (or all tenants, with None). Claims always serve
    all tenants."""

    # enqueueing
    def enqueue(
        self,
        kind: str,
        id: str | int,
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        conn: Any = None,
    ) -> EnqueueResult:
        """Enqueue a job for a record as it is now: for rows that the kind's loader fetches, or to
        embed a record again."""
        (result,) = self.enqueue_many(
            kind, [id], priority=priority, delay=delay, max_attempts=max_attempts, conn=conn
        )
        if result.error is not None:
            raise InvalidRecord(result.error)
        return result

    def enqueue_many(
        self,
        kind: str,
        ids: Iterable[str | int],
        *,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        conn: Any = None,
    ) -> list[EnqueueResult]:
        """Enqueue many, in batches; one result or error per input, in order."""
        check_name("kind", kind)
        tenant, known = self._one_tenant(), self._kinds.get(kind)
        has_loader = known is not None and known.load is not None
        when = check_when(Draft("", "", b""), priority, delay, max_attempts)
        found: list[EnqueueResult] = []
        inputs = iter(ids)
        while batch := list(islice(inputs, _BATCH)):
            good, errors = _check_ids(batch)
            enqueued = iter(
                self._store.changes.enqueue(
                    tenant, kind, good, loaded=has_loader, app=has_loader, priority=when.priority,
                    delay=when.delay, max_attempts=when.max_attempts, bounded=True, conn=conn,
                ) if good else ()
            )  # fmt: skip
            found += [errors[n] if n in errors else next(enqueued) for n in range(len(batch))]
        return found

    # claiming and ending
    def claim(
        self, limit: int = 1, *, versions: Sequence[int] | None = None, suspects: bool = True
    ) -> list[Job]:
        """Claim up to `limit` due jobs. Finish, fail, release or renew each before its lease
        expires."""
        check_limit(limit)
        lease = self._settings.lease_seconds
        return self._store.leases.claim(
            limit, worker=self.worker, lease=lease, versions=versions, suspects=suspects
        )

    def content(self, job: Job) -> Content | None:
        """The current content of a claimed job: the record, the boxed record that the job carries,
        or the row that it has to load. None: the record's points are to be removed."""
        return self._content(job)

    def peek(self, job_id: int) -> Content | None:
        """The content of a job without claiming it, such as the boxed record that it carries;
        nothing changes. None: the record's points are to be removed. A job that has to load its row
        has no content yet, and raises `InvalidArgument`."""
        while True:
            job = self.get(job_id)
            if job is None:
                raise InvalidArgument(f"job {job_id} does not exist")
            if job.status is Status.DONE:
                return self._shown(job)
            if job.op is Op.LOAD:
                raise InvalidArgument(
                    f"job {job_id} has no content yet: its row is loaded when it is embedded"
                )
            try:
                return self._content(job)
            except (InvalidRecord, LeaseLost):
                if self.get(job_id) == job:  # else it ended or was cancelled meanwhile
                    raise

    def _shown(self, job: Job) -> Content | None:
        """The record of a job that is done, whose box is empty by now."""
        found = self._store.records.get(job.tenant, job.kind, job.record_id)
        if found is None:
            return None
        return Content(found.title, found.text, found.metadata, found.weight)

    def finish(self, job: Job, content: Content | None = NOT_READ) -> None:
        """Mark a claimed job done, for callers that keep their own index. A boxed or loaded record
        becomes visible with it: pass the result of `content` for the job."""
        reveal = None if content is None else content.draft
        gone = content is None and job.op is Op.LOAD
        finish = Finish(job, reveal=reveal, gone=gone, worker=self.worker)
        self._must_hold(self._finish([finish])[0], job)

    def finish_many(self, jobs: Sequence[Job]) -> list[bool]:
        """Finish claimed jobs in one transaction; False where the lease was lost."""
        return self._finish([Finish(job, worker=self.worker) for job in jobs])

    def _finish(self, finishes: Sequence[Finish]) -> list[bool]:
        done = self._store.leases.finish(finishes)
        self.recorder.finished(list(compress(finishes, done)))
        self.recorder.flush_if_due()
        return done

    def fail(self, job: Job, error: str | BaseException, *, permanent: bool = False) -> None:
        """Schedule the job's next attempt, or make it a dead letter when none is left."""
        self._must_hold(self.fail_many([(job, str(error), permanent)])[0] is not None, job)

    def _backoff(self, attempts: int) -> float:
        own = self._settings
        return backoff(
            attempts, own.backoff_seconds, own.backoff_cap_seconds, own.backoff_jitter, own.rng
        )

    def fail_many(self, failures: Sequence[tuple[Job, str, bool]]) -> list[Status | None]:
        """Fail `(job, error, permanent)` tuples; returns each job's new status, None where the
        lease was lost."""
        now = self._store.now()
        ends = self._store.leases.fail(
            [
                Failure(
                    job,
                    _storable(error),
                    None if permanent else now + self._backoff(job.attempts),
                    self.worker,
                )
                for job, error, permanent in failures
            ]
        )
        self.recorder.failed(
            (job, _storable(error), end)
            for (job, error, _), end in zip(failures, ends, strict=True)
        )
        self.recorder.flush_if_due()
        for (job, error, _), end in zip(failures, ends, strict=True):
            if end is Status.FAILED:
                report_dead(job, error)
            elif end is Status.PENDING:
                log.info(
                    "job %d will be retried: %s", job.job_id, error,
                    extra={"job_id": job.job_id, "kind": job.kind, "attempts": job.attempts},
                )  # fmt: skip
        return ends

    def release(self, job: Job) -> None:
        """Give a claimed job back without spending its attempt."""
        self._must_hold(self._store.leases.release([job])[0], job)

    def release_many(self, jobs: Sequence[Job], error: str | None = None) -> list[bool]:
        return self._store.leases.release(jobs, error=None if error is None else _storable(error))

    def postpone(self, job: Job, why: str) -> bool:
        """Give a claimed job back without spending its attempt, to be tried again later: another
        process may be able to do it. False: the lease was lost."""
        due = self._store.now() + _POSTPONED
        return self._store.leases.release([job], error=_storable(why), due=due)[0]

    def renew(self, job: Job) -> None:
        """Renew the lease of a claimed job."""
        self._must_hold(self.renew_many([job])[0], job)

    def renew_many(self, jobs: Sequence[Job]) -> list[bool]:
        """Renew the leases of claimed jobs; False: the lease of this one is lost. A worker's
        `Heartbeat` calls it three times in `lease_seconds`."""
        return self._store.leases.renew(jobs, self._settings.lease_seconds)

    def _must_hold(self, held: bool, job: Job) -> None:
        if not held:
            raise LeaseLost(
                f"the token of job {job.job_id} ({job.kind} {job.record_id!r}) is no longer valid: "
                "its lease expired and another worker claimed it, or it has ended; discard the "
                "result"
            )


def _check_ids(ids: list[Any]) -> tuple[list[str], dict[int, EnqueueResult]]:
    """The valid ids as text, and the errors of the invalid ones by position."""
    if are_plain_ids(ids):
        return ids, {}
    good, errors = [], {}
    for place, given in enumerate(ids):
        try:
            good.append(existing_id(given))
        except InvalidRecord as error:
            errors[place] = EnqueueResult(None, False, str(error))
    return good, errors


def _storable(error: str) -> str:
    """The error text with characters that are not valid UTF-8 escaped."""
    return error.encode("utf-8", "backslashreplace").decode()
