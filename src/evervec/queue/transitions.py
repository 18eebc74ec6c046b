"""What becomes of a job when something meets it: the whole machine, once.

The functions are pure, and are the rule. The engines say the same in SQL, a batch at a time;
`tests/conformance/test_transitions.py` compares the two for every state that can exist. Three ideas
explain most:

* A debt never shrinks. A row that must be read (`Op.LOAD`) or a box that must be opened
  (`Op.OPEN`) stays so until that is done; only newer content takes its place.
* Only the holder of the token ends a claimed job. A change that lands meanwhile overtakes the
  claim: it waits at its own time, with no attempt spent, however the claim ends.
* Only a claim spends an attempt, only a release gives it back, only a lost lease counts a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from evervec.model.jobs import Op, Status

PENDING, PROCESSING, DONE, FAILED = Status
RETRIED = frozenset({FAILED})
"""A retry by hand takes a job out of these alone: elsewhere there is nothing to try again."""
CANCELLED = frozenset({PENDING, FAILED})
"""A claimed job is its holder's, and a done one is the trace of what the index holds."""


@dataclass(frozen=True, slots=True)
class JobState:
    """What the rules look at, in the order of the query `standing`."""

    status: Status
    op: Op
    seq: int
    """the change that it wants"""
    claimed_seq: int | None = None
    """what `seq` was at the last claim"""
    finished_seq: int | None = None
    """the latest change that was finished"""
    token: str | None = None
    """of the claim that holds it, or that finished it last"""
    attempts: int = 0
    max_attempts: int = 10
    crashes: int = 0
    boxed: bool = False
    """it carries the record that it has to open"""
    priority: int = 0
    scheduled_for: float = 0.0
    error: str | None = None
    """how the last attempt ended, until one succeeds or something newer starts"""
    completed_at: float | None = None
    started_at: float | None = None
    lease_expires_at: float | None = None

    @property
    def held(self) -> bool:
        return self.status is PROCESSING

    @property
    def overtaken(self) -> bool:
        """Something newer came since the claim."""
        return self.seq > (self.claimed_seq or 0)

    @property
    def reads(self) -> bool:
        """It owes a row or a box."""
        return self.op in (Op.LOAD, Op.OPEN) and self.status is not DONE

    def held_by(self, token: str | None) -> bool:
        """A job without a token, and a token of an earlier claim, hold nothing."""
        return self.held and token is not None and self.token == token

    def finished_by(self, token: str | None, claimed_seq: int | None) -> bool:
        """That finish was taken before, and its answer lost: it is answered again, not done."""
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
    """Add, delete, enqueue, table change and reopen end here: one job for each record and version,
    which wants the latest change. N changes before a claim cost one embedding."""
    if job is None:
        return JobState(
            PENDING, ask.op, ask.seq, max_attempts=ask.max_attempts, boxed=ask.boxed,
            priority=ask.priority, scheduled_for=ask.due,
        )  # fmt: skip
    waits = job.status is PENDING or (job.held and job.overtaken)
    asked = replace(
        job, op=ask.op, seq=ask.seq, boxed=ask.boxed, max_attempts=ask.max_attempts,
        # what was urgent stays urgent until it is done
        priority=max(job.priority, ask.priority) if job.status in (PENDING, PROCESSING)
        else ask.priority,
        # what waits keeps its place; a claim's own time says nothing of the next pass
        scheduled_for=min(job.scheduled_for, ask.due) if waits else ask.due,
    )  # fmt: skip
    if job.held:  # the claim goes on, and its end sees that it was overtaken
        return asked
    return replace(asked, status=PENDING, attempts=0, crashes=0, error=None, completed_at=None)


# What a request asks of each version. New content takes the place of a debt, because it is newer
# than what the debt would read: an add asks every version to EMBED, a delete to DELETE. A boxed add
# asks the version that serves to OPEN, and the others nothing: the record appears when that one has
# it, and they are told then. An add of what is there asks nothing, unless the job failed or has a
# box that would replace it; nor does a delete of what neither is there nor will be read.


class Work(NamedTuple):
    """What is to be done, and the box of an OPEN."""

    op: Op
    box: str | None = None
    box_seq: int = 0
    """of the add that filled the box"""


def debt(asked: Op, owed: Iterable[Work], *, is_loaded: bool = False) -> Work:
    """What a job has to do that is asked for again by somebody who brings no content: enqueue,
    repair, backfill, a migration, a lost lease. A row is newer than any box, because it is read
    when the job is done. `owed`: by all versions of the record that still read (`reads`), because
    one of them may have read what another has not. Of two boxes the newer one counts. A box keeps
    its own seq, whatever its job gets: it is no newer for being asked for again."""
    debts = sorted(owed, key=lambda one: (one.op is Op.LOAD, one.box_seq))
    newest = debts[-1] if debts else Work(asked)
    return Work(Op.LOAD) if is_loaded or newest.op is Op.LOAD else newest


def to_enqueue(state: str, is_loaded: bool) -> Op:
    """Before debts; a table change is an enqueue whose row is loaded. A hidden record has nothing
    to embed: whoever enqueues it means a row."""
    if is_loaded or state == "hidden":
        return Op.LOAD
    return Op.EMBED if state == "live" else Op.DELETE


def to_reopen(state: str) -> Op:
    """Before debts: the record's points are in doubt, so a record that is not there has none."""
    return Op.EMBED if state == "live" else Op.DELETE


def beside_box(asked: Op) -> Op | None:
    """What a version that does not serve has to do while the one that serves has a box to open:
    the record as it is, which searches need until then, and if the box is bad for longer."""
    return None if asked is Op.LOAD else asked  # of a hidden record: nothing yet


def takes_box(record_seq: int, op: str | None, job_seq: int | None, box_seq: int) -> bool:
    """Whether the version that serves takes a box from one that does not: not when the record, or
    what its own job reads, is newer. At a switch, and before a version is dropped, so that no box
    is lost with its job."""
    reads_newer = op in (Op.OPEN, Op.LOAD) and (job_seq or 0) > box_seq
    return record_seq <= box_seq and not reads_newer


def follows_box(op: str | None, job_seq: int | None, box_seq: int) -> bool:
    """Whether another version embeds a record that came out of its box: not when it has to read
    a row that is newer."""
    return not (op == Op.LOAD and (job_seq or 0) > box_seq)


def join(job: JobState | None, serving: JobState | None) -> JobState | None:
    """A version that is begun gets the rows that the serving one has yet to load; what is live
    it gets by reopen, and boxes when they are opened."""
    if job is None and serving is not None and serving.op is Op.LOAD and serving.reads:
        due, priority = serving.scheduled_for, serving.priority
        return put(None, Ask(Op.LOAD, serving.seq, due, False, priority, serving.max_attempts))
    return job


# A claim, and how it ends.


def claim(job: JobState, token: str, now: float, lease: float) -> JobState:
    """Of what is pending and due. The attempt counts now, so that a crash cannot hide it."""
    return replace(
        job, status=PROCESSING, token=token, claimed_seq=job.seq, attempts=job.attempts + 1,
        started_at=now, lease_expires_at=now + lease,
    )  # fmt: skip


def renew(job: JobState, now: float, lease: float) -> JobState:
    return replace(job, lease_expires_at=now + lease)


def finish(job: JobState, seq: int, now: float) -> JobState:
    """`seq`: of the content that was embedded, which may be newer than the claim. The token stays,
    so that the same finish is known when it comes again; a worker that lived clears the crashes."""
    done = replace(
        job, finished_seq=seq, completed_at=now, lease_expires_at=None, error=None, crashes=0
    )
    if job.seq > seq:  # what came since is next, with its box and at its own time
        return replace(done, status=PENDING, attempts=0)
    return replace(done, status=DONE, boxed=False)


def fail(job: JobState, error: str, retry_at: float | None, now: float) -> JobState:
    """`retry_at` None: a permanent error. The last attempt ends in the dead letters."""
    ended = replace(job, error=error, token=None, lease_expires_at=None, completed_at=None)
    if job.overtaken:
        return replace(ended, status=PENDING, attempts=0)
    if retry_at is None or job.attempts >= job.max_attempts:
        return replace(ended, status=FAILED, scheduled_for=now, completed_at=now)
    return replace(ended, status=PENDING, scheduled_for=retry_at)


def release(job: JobState, error: str | None = None, due: float | None = None) -> JobState:
    """The job was not to blame: its attempt is given back. An outage leaves its words."""
    words = job.error if error is None else error
    back = replace(job, status=PENDING, token=None, lease_expires_at=None, error=words)
    if job.overtaken:
        return replace(back, attempts=0)
    due = job.scheduled_for if due is None else due
    return replace(back, attempts=max(job.attempts - 1, 0), scheduled_for=due)


def expire(job: JobState, now: float) -> JobState:
    """Its worker stopped answering. A first crash says nothing of the job, which may only have
    been in bad company: it never ends the last attempt, and the job gets one more, alone."""
    error = f"its worker stopped answering in attempt {job.attempts}"
    back = replace(
        job, status=PENDING, crashes=job.crashes + 1, error=error, token=None,
        lease_expires_at=None, completed_at=None,
    )  # fmt: skip
    if job.overtaken:
        return replace(back, attempts=0)
    if job.crashes > 0 and job.attempts >= job.max_attempts:
        return replace(back, status=FAILED, scheduled_for=now, completed_at=now)
    return replace(back, scheduled_for=now)


# What people and housekeeping do.


def retry(job: JobState, now: float) -> JobState:
    """From zero: whoever asks has mended something. The debt is as it was."""
    return replace(
        job, status=PENDING, attempts=0, crashes=0, error=None, completed_at=None,
        scheduled_for=now,
    )  # fmt: skip


def is_purged(job: JobState, status: Status, before: float, *, boxed: bool) -> bool:
    """A box is the only copy of its record, so it goes only by an explicit word."""
    old = job.completed_at is not None and job.completed_at < before
    return job.status is status and old and (boxed or not job.boxed)
