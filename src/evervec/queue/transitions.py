"""The job state machine: every transition, stated once.

The functions are pure, and they are the rule. The engines implement the same in SQL, a batch at a
time; `tests/conformance/test_transitions.py` compares the two for every possible state. Three ideas
explain most of it:

* A debt never shrinks. A row that must be read (`Op.LOAD`) or a box that must be opened (`Op.OPEN`)
  remains to be read until that is done; only newer content replaces it.
* Only the holder of the token ends a claimed job. A change that arrives in the meantime overtakes
  the claim: however the claim ends, the change is pending at its own due time, with no attempt
  spent.
* Only a claim spends an attempt, only a release gives it back, and only an expired lease counts a
  crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from evervec.model.jobs import Op, Status

PENDING, PROCESSING, DONE, FAILED = Status
RETRIED = frozenset({FAILED})
"""A manual retry applies to these states only: in the others there is nothing to retry."""
CANCELLED = frozenset({PENDING, FAILED})
"""A claimed job belongs to its holder, and a done job records what the index holds."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The fields that the rules depend on, in the order of the query `standing`."""

    status: Status
    op: Op
    seq: int
    """the change to be indexed"""
    claimed_seq: int | None = None
    """the value of `seq` at the last claim"""
    finished_seq: int | None = None
    """the latest change that was finished"""
    token: str | None = None
    """of the claim that holds the job, or that finished it last"""
    attempts: int = 0
    max_attempts: int = 10
    crashes: int = 0
    boxed: bool = False
    """the job carries a boxed record that it has to open"""
    priority: int = 0
    scheduled_for: float = 0.0
    error: str | None = None
    """error of the last attempt, until an attempt succeeds or a newer change restarts the job"""
    completed_at: float | None = None
    started_at: float | None = None
    lease_expires_at: float | None = None

    @property
    def held(self) -> bool:
        return self.status is PROCESSING

    @property
    def overtaken(self) -> bool:
        """Whether a newer change arrived since the claim."""
        return self.seq > (self.claimed_seq or 0)

    @property
    def reads(self) -> bool:
        """Whether the job has a row or a box to read."""
        return self.op in (Op.LOAD, Op.OPEN) and self.status is not DONE

    def held_by(self, token: str | None) -> bool:
        """Whether the token holds the claim. No token, or the token of an earlier claim, holds
        nothing."""
        return self.held and token is not None and self.token == token

    def finished_by(self, token: str | None, claimed_seq: int | None) -> bool:
        """Whether this finish was already applied and its reply lost: it succeeds again and changes
        nothing."""
        same = not self.held and token is not None and self.token == token
        return same and (self.finished_seq or -1) >= (claimed_seq or 0)


class Ask(NamedTuple):
    """A request for a job, with a seq above all earlier ones."""

    op: Op
    seq: int
    due: float
    boxed: bool = False
    priority: int = 0
    max_attempts: int = 10


def put(job: JobState | None, ask: Ask) -> JobState:
    """Add, delete, enqueue, table changes and reopen all end here. There is one job per record and
    version, and it wants the latest change, so N changes before a claim cost one embedding."""
    if job is None:
        return JobState(
            PENDING, ask.op, ask.seq, max_attempts=ask.max_attempts, boxed=ask.boxed,
            priority=ask.priority, scheduled_for=ask.due,
        )  # fmt: skip
    waits = job.status is PENDING or (job.held and job.overtaken)
    asked = replace(
        job, op=ask.op, seq=ask.seq, boxed=ask.boxed, max_attempts=ask.max_attempts,
        # an unfinished job keeps the higher priority
        priority=max(job.priority, ask.priority) if job.status in (PENDING, PROCESSING)
        else ask.priority,
        # a waiting job keeps its place; a claimed job's due time does not matter for the next pass
        scheduled_for=min(job.scheduled_for, ask.due) if waits else ask.due,
    )  # fmt: skip
    if job.held:  # the claim continues; when it ends, the job is seen to be overtaken
        return asked
    return replace(asked, status=PENDING, attempts=0, crashes=0, error=None, completed_at=None)


# What each request asks of each version. New content replaces a debt, because it is newer than what
# the debt would read: an add asks every version to EMBED, a delete asks it to DELETE. A boxed add
# asks the serving version to OPEN and the others for nothing: they get the record when the serving
# version has opened it. An add of unchanged content asks for nothing, unless the job failed or some
# version has a box that would replace the content: after a switch the box is passed on, but not in
# the same transaction. A delete of a record that does not exist and is not waiting to be read, by
# any version, asks for nothing.


class Work(NamedTuple):
    """What is to be done, and the box of an OPEN."""

    op: Op
    box: str | None = None
    box_seq: int = 0
    """of the add that filled the box; of a LOAD, the seq of its job"""


def debt(asked: Op, owed: Iterable[Work], *, is_loaded: bool = False) -> Work:
    """The operation of a job that is requested again without new content: by enqueue, repair,
    backfill, a migration or a lost lease. `owed`: the work of all versions of the record that still
    have something to read (`reads`), because one version may have read what another has not; a row
    that only a retired one would read does not count, because changes do not reach it. The newest
    request counts: a box that was filled after a row was asked for replaces the row, also where a
    version has not read it. A box keeps its own seq when its job gets a newer one."""
    debts = sorted(owed, key=lambda one: (one.box_seq, one.op is Op.LOAD))
    newest = debts[-1] if debts else Work(asked)
    return Work(Op.LOAD) if is_loaded or newest.op is Op.LOAD else newest


def to_enqueue(state: str, is_loaded: bool) -> Op:
    """The operation before debts; a table change is an enqueue whose row is loaded. A hidden record
    has nothing to embed, so enqueueing it means loading its row."""
    if is_loaded or state == "hidden":
        return Op.LOAD
    return Op.EMBED if state == "live" else Op.DELETE


def to_reopen(state: str) -> Op:
    """The operation before debts. The record's points are in doubt, so a record that is not live
    must have none. The job starts from zero attempts, also when a worker reopens it that lost its
    lease between its write to an outside index and its finish: the work itself was done, so this
    must not lead to a dead letter. Work that outlasts its lease before the write spends attempts
    like a crash."""
    return Op.EMBED if state == "live" else Op.DELETE


def beside_box(asked: Op) -> Op | None:
    """What a non-serving version has to do while the serving version has a box to open: index the
    record as it is now. Searches need that until the box is opened, and longer if the box is
    bad."""
    return None if asked is Op.LOAD else asked  # a hidden record has nothing to index yet


def takes_box(record_seq: int, op: str | None, job_seq: int | None, box_seq: int) -> bool:
    """Whether the serving version takes over a box from a non-serving one: not when the record, or
    what the serving version's job reads, is newer. Applied at a switch and before a version is
    dropped, so that no box is lost with its job."""
    reads_newer = op in (Op.OPEN, Op.LOAD) and (job_seq or 0) > box_seq
    return record_seq <= box_seq and not reads_newer


def follows_box(op: str | None, job_seq: int | None, box_seq: int) -> bool:
    """Whether another version embeds a record whose box was opened: not when that version has a
    newer row to read."""
    return not (op == Op.LOAD and (job_seq or 0) > box_seq)


def before_box(text_seq: int | None, record_seq: int, seq: int) -> bool:
    """Whether a result is of a text that a box has replaced since it was read. `seq`: of its job.
    A job that was enqueued while the box waited has a larger seq than the box, and so than the
    record has now: by numbers, the result would seem to be up to date. It is not written, because
    the record is embedded again for that version. For the same reason, what other versions have
    indexed gets a number below that of an opened box (`outdate_ledger`)."""
    return text_seq is not None and text_seq < record_seq <= seq


def join(job: JobState | None, serving: JobState | None) -> JobState | None:
    """A new version gets the rows that the serving version has yet to load. It gets live records by
    reopen, and boxes when they are opened."""
    if job is None and serving is not None and serving.op is Op.LOAD and serving.reads:
        due, priority = serving.scheduled_for, serving.priority
        return put(None, Ask(Op.LOAD, serving.seq, due, False, priority, serving.max_attempts))
    return job


# Claims, and how they end.


def claim(job: JobState, token: str, now: float, lease: float) -> JobState:
    """Claim a pending, due job. The attempt is counted now, so that a crash cannot hide it."""
    return replace(
        job, status=PROCESSING, token=token, claimed_seq=job.seq, attempts=job.attempts + 1,
        started_at=now, lease_expires_at=now + lease,
    )  # fmt: skip


def renew(job: JobState, now: float, lease: float) -> JobState:
    return replace(job, lease_expires_at=now + lease)


def finish(job: JobState, seq: int, now: float) -> JobState:
    """`seq`: of the content that was embedded, which may be newer than the claim. The token stays,
    so that a repeated finish is recognised; success resets the crashes."""
    done = replace(
        job, finished_seq=seq, completed_at=now, lease_expires_at=None, error=None, crashes=0
    )
    if job.seq > seq:  # a newer change is next, with its box and due time
        return replace(done, status=PENDING, attempts=0)
    return replace(done, status=DONE, boxed=False)


def fail(job: JobState, error: str, retry_at: float | None, now: float) -> JobState:
    """`retry_at` None: a permanent error. A job without attempts left becomes a dead letter."""
    ended = replace(job, error=error, token=None, lease_expires_at=None, completed_at=None)
    if job.overtaken:
        return replace(ended, status=PENDING, attempts=0)
    if retry_at is None or job.attempts >= job.max_attempts:
        return replace(ended, status=FAILED, scheduled_for=now, completed_at=now)
    return replace(ended, status=PENDING, scheduled_for=retry_at)


def release(job: JobState, error: str | None = None, due: float | None = None) -> JobState:
    """Give the attempt back, because the job was not at fault. An outage records its error."""
    words = job.error if error is None else error
    back = replace(job, status=PENDING, token=None, lease_expires_at=None, error=words)
    if job.overtaken:
        return replace(back, attempts=0)
    due = job.scheduled_for if due is None else due
    return replace(back, attempts=max(job.attempts - 1, 0), scheduled_for=due)


def expire(job: JobState, now: float) -> JobState:
    """The worker stopped renewing the lease. A first crash does not prove the job guilty, since
    another job of the batch may have caused it: even on its last attempt the job gets one more,
    alone."""
    error = f"the worker did not finish attempt {job.attempts}; the job was recovered"
    back = replace(
        job, status=PENDING, crashes=job.crashes + 1, error=error, token=None,
        lease_expires_at=None, completed_at=None,
    )  # fmt: skip
    if job.overtaken:
        return replace(back, attempts=0)
    if job.crashes > 0 and job.attempts >= job.max_attempts:
        return replace(back, status=FAILED, scheduled_for=now, completed_at=now)
    return replace(back, scheduled_for=now)


# Manual operations and housekeeping.


def retry(job: JobState, now: float) -> JobState:
    """Start again from zero attempts, because the cause was presumably fixed. The debt is
    unchanged."""
    return replace(
        job, status=PENDING, attempts=0, crashes=0, error=None, completed_at=None,
        scheduled_for=now,
    )  # fmt: skip


def is_purged(job: JobState, status: Status, before: float, *, boxed: bool) -> bool:
    """A box is the only copy of its record, so it is purged only on explicit request."""
    old = job.completed_at is not None and job.completed_at < before
    return job.status is status and old and (boxed or not job.boxed)
