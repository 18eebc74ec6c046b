"""Every state that a job can be in.

`impossible` says which combinations of a job's fields cannot exist, and why. The others are few
enough to be tried all: relations count, not numbers, so each field has the two to four values that
some rule tells apart.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from itertools import product

from evervec.model.jobs import Op, Status
from evervec.queue.transitions import JobState
from support.world import START

OLD, SOON, LATER = START - 1000, START + 50, START + 100
"""before now, when a delayed request is due, and behind that"""
TOKEN, LOST, ERROR = "held", "lost", "an older error"
MOST = 2
"""attempts that a job may spend"""
RANKS = ((0, OLD, None), (5, LATER, OLD), (0, LATER, None), (5, OLD, OLD))
"""priority, when it is due, and when an earlier pass was completed"""


def impossible(job: JobState) -> str | None:
    """Why a job is never in this state; None where it can be."""
    return next((why for why, is_broken in _NEVER.items() if is_broken(job)), None)


_NEVER: dict[str, Callable[[JobState], bool]] = {
    "a box goes with OPEN, until it is opened": lambda job: (
        job.boxed != (job.op is Op.OPEN and job.status is not Status.DONE)
    ),
    "a lease is what holds a job": lambda job: job.held != (job.lease_expires_at is not None),
    "what was started was claimed": lambda job: (
        (job.started_at is None) != (job.claimed_seq is None)
    ),
    "nothing is newer than what is wanted": lambda job: (
        max(job.claimed_seq or 0, job.finished_seq or 0) > job.seq
    ),
    "only a claim is finished": lambda job: (
        job.finished_seq is not None and job.claimed_seq is None
    ),
    "what is finished is done": lambda job: (
        (job.finished_seq == job.seq) != (job.status is Status.DONE)
    ),
    "a claim has a token and spends an attempt": lambda job: (
        job.held and (job.token is None or job.claimed_seq is None or job.attempts == 0)
    ),
    "the token of a finish stays, and all else starts from zero": lambda job: (
        not job.held
        and job.token is not None
        and ((job.finished_seq or 0) < (job.claimed_seq or 1) or job.error is not None)
    ),
    "with the token of a later claim, or none, nothing was finished since": lambda job: (
        (job.held or job.token is None)
        and job.finished_seq is not None
        and job.finished_seq >= (job.claimed_seq or 0)
    ),
    "what is done has the token, the time and the attempt of its finish": lambda job: (
        job.status is Status.DONE
        and (job.token is None or job.completed_at is None or job.attempts == 0)
    ),
    "a dead letter says why and when, after an attempt at what it wants": lambda job: (
        job.status is Status.FAILED
        and (job.completed_at is None or job.attempts == 0 or job.claimed_seq != job.seq)
    ),
    "a bad end leaves its words": lambda job: (
        job.error is None
        and (
            job.crashes > 0
            or job.status is Status.FAILED
            or (job.status is Status.PENDING and job.attempts > 0)
            or (job.held and job.attempts > 1)
        )
    ),
    "and has happened": lambda job: job.error is not None and job.claimed_seq is None,
    "attempts are of the change that waits": lambda job: (
        job.status is Status.PENDING and job.attempts > 0 and job.claimed_seq != job.seq
    ),
    "one attempt more is for what crashed": lambda job: (
        job.claimed_seq == job.seq
        and job.status is not Status.DONE
        and job.attempts > job.max_attempts - (job.status is Status.PENDING) + (job.crashes > 0)
    ),
}


@cache
def every_state() -> tuple[JobState, ...]:
    """All that can be. What `impossible` derives from other fields is not tried both ways, and
    relations between seqs are, not numbers: the wanted one is 3, the next 2, the one before 1."""
    seqs = [(None, None), (3, None), (2, None), (3, 3), (3, 2), (2, 3), (2, 2), (1, 2), (2, 1)]
    combinations = product(
        Status, Op, seqs, (None, TOKEN), (0, 1, 2, 3), (0, 1), (None, ERROR), RANKS
    )
    made = (
        JobState(
            status, op, 3, claimed, finished, token, attempts, MOST, crashes,
            op is Op.OPEN and status is not Status.DONE, priority, due, error,
            OLD if status in (Status.DONE, Status.FAILED) else completed,
            OLD if claimed else None, LATER if status is Status.PROCESSING else None,
        )
        for status, op, (claimed, finished), token, attempts, crashes, error,
        (priority, due, completed) in combinations
    )  # fmt: skip
    return tuple(state for state in made if impossible(state) is None)


@cache
def by_two_ranks() -> tuple[JobState, ...]:
    """For events that compare neither priorities nor times: one rank ahead, one behind."""
    ranks = {rank[:2] for rank in RANKS[:2]}
    return tuple(s for s in every_state() if (s.priority, s.scheduled_for) in ranks)


def expired(states: Iterable[JobState]) -> list[JobState]:
    """The leased ones of them, with leases that ran out, of another claim."""
    return [replace(s, token=LOST, lease_expires_at=OLD) for s in states if s.held]
