"""Rows of the jobs table as values, and the decisions that depend on them."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from evervec.errors import InvalidTransition
from evervec.model.basics import as_datetime, quick_maker
from evervec.model.failures import fingerprint
from evervec.model.jobs import Job, Op, Outcome, Status
from evervec.queue.transitions import JobState
from evervec.stores.ledger import unpack_chunks
from evervec.stores.values import Finish, Loaded, Unreadable

JobRow = tuple[Any, ...]
"""The columns of `job_columns` or of a claim, in that order. Both begin with those of `HEAD`."""
HEAD = ("job_id", "tenant", "kind", "id", "version", "op", "seq")
number_of = itemgetter(HEAD.index("job_id"))
version_of = itemgetter(HEAD.index("version"))
tenant_of = itemgetter(HEAD.index("tenant"))

CRASH_SHRINKS_BY = 16
"""Each crash of a job's worker divides the size of the batch it is next claimed in by this."""

_STATUS = {s.value: s for s in Status}
_OP = {o.value: o for o in Op}
_LEASED = Status.PROCESSING
_READING = (Op.OPEN, Op.LOAD)
_make_job = quick_maker(Job)


@lru_cache(maxsize=4096)
def _moment(seconds: float) -> datetime:
    """Cached, because jobs of one batch share their times."""
    return datetime.fromtimestamp(seconds, UTC)


class Lease(NamedTuple):
    """What a claim sets on each of its jobs."""

    token: str
    worker: str
    started_at: float
    expires_at: float


class JobValues(NamedTuple):
    """A job as statements write it."""

    job_id: int
    record: int
    version: int
    op: str
    priority: int
    scheduled_for: float
    seq: int
    max_attempts: int
    box: str | None
    box_seq: int | None
    """the seq of the add that filled the box"""
    trace: str | None


def make_jobs(names: Mapping[int, str], rows: Iterable[JobRow]) -> list[Job]:
    """Jobs from rows of `job_columns`; `names`: the names of the embedding versions."""
    return [
        _make_job(
            job_id, tenant, kind, record_id, names[version], _OP[op], seq, claimed_seq,
            _STATUS[status], priority, attempts, max_attempts, error, token, _moment(created_at),
            _moment(scheduled_for), as_datetime(started_at), as_datetime(completed_at),
            as_datetime(expires_at), record, version, worker, crashes,
        )
        for (
            job_id, tenant, kind, record_id, version, op, seq, claimed_seq, status, priority,
            attempts, max_attempts, error, token, created_at, scheduled_for, started_at,
            completed_at, expires_at, record, worker, crashes,
        ) in rows
    ]  # fmt: skip


def leased_jobs(names: Mapping[int, str], rows: Iterable[JobRow], lease: Lease) -> list[Job]:
    """Jobs from rows of `claim_columns` that were read before `lease` was written to them."""
    token, worker, started_at, expires_at = lease
    started, expires = as_datetime(started_at), as_datetime(expires_at)
    jobs = []
    for (
        job_id, tenant, kind, record_id, version, op, seq, priority, attempts, max_attempts,
        error, created_at, scheduled_for, completed_at, record, crashes,
    ) in rows:  # fmt: skip
        created = _moment(created_at)
        due = created if scheduled_for == created_at else _moment(scheduled_for)
        completed = None if completed_at is None else _moment(completed_at)
        jobs.append(
            _make_job(
                job_id, tenant, kind, record_id, names[version], _OP[op], seq, seq, _LEASED,
                priority, attempts + 1, max_attempts, error, token, created, due, started,
                completed, expires, record, version, worker, crashes,
            )
        )  # fmt: skip
    return jobs


def company(crashes: int, attempts: int, max_attempts: int, limit: int) -> int:
    """The size of the batch that a job may be claimed in: smaller after each crash of its worker,
    and 1 once another crash would make it a dead letter (see `transitions.expire`)."""
    if crashes and attempts >= max_attempts:
        return 1
    shrunk: int = limit // CRASH_SHRINKS_BY**crashes
    return max(1, shrunk)


def together(jobs: list[Job], limit: int) -> list[Job]:
    """Those of the due jobs that are claimed in one batch with the first."""
    if not any(job.crashes for job in jobs):
        return jobs

    def alike(job: Job) -> tuple[int, int]:
        return job.crashes, company(job.crashes, job.attempts, job.max_attempts, limit)

    first = alike(jobs[0])
    return [job for job in jobs if alike(job) == first][: first[1]]


def standing_of(row: JobRow) -> tuple[int, JobState]:
    """A job's number and state, from a row of `standing`."""
    job_id, status, op, *rest = row
    return job_id, JobState(_STATUS[status], _OP[op], *rest)


def holds(standing: Mapping[int, JobState], job: Job) -> bool:
    row = standing.get(job.job_id)
    return row is not None and row.held_by(job.token)


def was_finished(standing: Mapping[int, JobState], finish: Finish) -> bool:
    """Whether the same finish was committed before, and only its answer was lost."""
    job = finish.job
    row = standing.get(job.job_id)
    return row is not None and row.finished_by(job.token, job.claimed_seq)


def must_last(finishes: Iterable[Finish]) -> bool:
    """Whether the finishes must be durable. Work in the store alone may be lost in a crash: it is
    lost as a whole, and done again. An index outside the store would keep its points while the
    jobs stayed leased."""
    return any(f.fence is not None for f in finishes)


def unread(finishes: Iterable[Finish]) -> list[Job]:
    """Jobs that a caller finishes although their box or row was never read."""
    return [
        f.job
        for f in finishes
        if f.change is None and f.job.op in _READING and f.reveal is None and not f.gone
    ]


def check_read(jobs: Iterable[Job], loaded: Container[str]) -> None:
    """Refuse to finish jobs whose record would be lost; `loaded`: the kinds whose rows evervec can
    load. For rows of other kinds the caller is responsible."""
    for job in jobs:
        if job.op is Op.OPEN or job.kind in loaded:
            what = "holds a boxed record" if job.op is Op.OPEN else "must load its record"
            raise InvalidTransition(
                f"job {job.job_id} ({job.kind} {job.record_id!r}) {what}, which would be lost: "
                "finish it with its content, finish(job, ev.queue.content(job)), or release it "
                "for a worker"
            )


def attempt_row(
    job: Job,
    outcome: Outcome,
    worker: str,
    error: str | None,
    now: float,
    done: Finish | None = None,
) -> tuple[Any, ...]:
    """The row of an attempt; `done`: the finish that ended it."""
    seq = job.claimed_seq if done is None else done.seq
    work = (0, 0, 0) if done is None else (done.embedded, done.reused, done.tokens)
    began = job.started_at.timestamp() if job.started_at else None
    return (
        job.record, job.tenant, job.version, job.attempts, seq, began, now, outcome.value, *work,
        worker, error and clean(error), None if done is None else done.embedded_at,
    )  # fmt: skip


def put_back_row(job: Job, end: JobState) -> tuple[Any, ...]:
    """The values of `put_back`: a job that is not done, as it is after an attempt."""
    error, alike = clean(end.error or ""), None
    if end.status is Status.FAILED:
        alike = fingerprint(job.kind, job.embedding_version, error)
    return (
        end.status.value, end.scheduled_for, end.attempts, end.crashes, error, alike,
        end.completed_at, job.job_id,
    )  # fmt: skip


def clean(error: str) -> str:
    """An error's text without NUL, which not every engine accepts."""
    return error.replace("\0", " ")


def loaded(row: tuple[Any, ...]) -> Loaded | Unreadable | None:
    """What a worker needs for a job, from a row of `load`; None: its record no longer exists."""
    (
        op, seq, state, title, text, metadata, weight, updated_at, chunks, box, trace, box_seq,
        record_seq,
    ) = row  # fmt: skip
    if state is None:
        return None
    try:
        return Loaded(
            _OP[op], seq, state == "live", title, text,
            {} if metadata == "{}" else json.loads(metadata), weight, updated_at,
            unpack_chunks(chunks), box, trace, box_seq or seq,
            None if _OP[op] in _READING else record_seq,
        )  # fmt: skip
    except (ValueError, TypeError, RecursionError) as error:
        return Unreadable(f"its metadata is not JSON: {error}")
