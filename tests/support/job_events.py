"""What can happen to a job: how a store is made to do it, and what the rules say of it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from evervec.model.jobs import Op, Status
from evervec.model.records import Change
from evervec.queue.transitions import (
    RETRIED,
    Ask,
    JobState,
    Work,
    debt,
    expire,
    fail,
    finish,
    is_purged,
    put,
    release,
    renew,
    retry,
    to_enqueue,
    to_reopen,
)
from evervec.stores.values import Draft, Failure, Finish
from support.job_bench import BOX, KIND, TEXT, Bench, Planted
from support.job_states import LOST, OLD, SOON, TOKEN, by_two_ranks, every_state, expired
from support.world import START

NOW, LEASE, DELAY = START, 30.0, SOON - START
PLAN: Any = {"priority": 3, "delay": DELAY, "max_attempts": 5}
STATES = ("live", "hidden", "deleted")
"""of records"""


Apply = Callable[[Bench, Sequence[Planted]], object]
"""The event, by the store's own methods."""


class Before(NamedTuple):
    """A job before the event, its record's state, and the number that the event gave it."""

    job: JobState | None
    record: str
    fresh: int


class Event(NamedTuple):
    """What happens to all jobs at once; `answer`: what the store says of each, if it says so."""

    apply: Apply
    after: Callable[[Before], JobState | None]
    answer: Callable[[JobState], object] | None = None
    attempt: Callable[[JobState], tuple[str, int, int] | None] = lambda _: None
    """what is noted of it: outcome, attempt and seq"""
    jobs: Callable[[], Sequence[JobState | None]] = by_two_ranks
    records: tuple[str, ...] = ("live",)


def _ids(rows: Sequence[Planted]) -> list[str]:
    return [row.id for row in rows]


# changes
def with_none() -> list[JobState | None]:
    return [None, *every_state()]


def fewer_with_none() -> list[JobState | None]:
    """For events that look at the record's state too."""
    return [None, *by_two_ranks()]


def save(text: str, hash: bytes | None, **more: Any) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> Sequence[object]:
        drafts = [Draft(row.id, text, hash, **PLAN, **more) for row in rows]  # type: ignore[arg-type]
        return [ticket.enqueued for ticket in bench.store.changes.save("default", KIND, drafts)]

    return apply


def enqueue(*, loaded: bool, owing: bool = True) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> None:
        how: Any = {"loaded": loaded, "owing": owing, **PLAN}
        bench.store.changes.enqueue("default", KIND, _ids(rows), **how)

    return apply


def reopen(bench: Bench, rows: Sequence[Planted]) -> None:
    bench.store.changes.reopen(1, [row.record for row in rows], forget=False, priority=3)


def reopen_and_forget(bench: Bench, rows: Sequence[Planted]) -> None:
    bench.store.changes.reopen(1, [row.record for row in rows], forget=True, priority=3)


def asked(before: Before, op: Op, box: bool = False) -> JobState:
    return put(before.job, Ask(op, before.fresh, SOON, box, 3, 5))


def asked_again(before: Before, work: Work) -> JobState:
    """By those who know nothing of delays and attempts."""
    ask = Ask(work.op, before.fresh, NOW, work.box is not None, 3)
    return put(before.job, ask)


def owed(job: JobState | None) -> list[Work]:
    if job is None or not job.reads:
        return []
    return [Work(job.op, BOX if job.boxed else None, job.seq)]


def enqueued(before: Before, *, loaded: bool, owing: bool = True) -> JobState:
    op = to_enqueue(before.record, loaded)
    work = debt(op, owed(before.job), is_loaded=loaded) if owing else Work(op)
    return asked(before, work.op, work.box is not None)


def reopened(before: Before) -> JobState:
    return asked_again(before, debt(to_reopen(before.record), owed(before.job)))


def deleted(before: Before) -> JobState | None:
    """What is there, or a job may yet make appear."""
    will_appear = before.job is not None and before.job.reads
    if before.record != "live" and not will_appear:
        return before.job
    return put(before.job, Ask(Op.DELETE, before.fresh, NOW))


def added_again(before: Before) -> JobState | None:
    """The same content: only what failed, or would be overwritten from its box, is done again."""
    job = before.job
    if job is not None and job.status is not Status.FAILED and not job.boxed:
        return job
    return asked(before, Op.EMBED)


CHANGES = {
    "add": Event(save("slate", b"new"), lambda b: asked(b, Op.EMBED), jobs=with_none),
    "add of the same": Event(save(TEXT, None), added_again, jobs=with_none),
    "boxed add": Event(
        save("slate", b"new", boxed=True), lambda b: asked(b, Op.OPEN, box=True), jobs=with_none
    ),
    "enqueue of a row, and table change": Event(
        enqueue(loaded=True), lambda b: enqueued(b, loaded=True), jobs=with_none
    ),
    "delete": Event(
        lambda bench, rows: bench.store.changes.delete("default", KIND, _ids(rows)),
        deleted, jobs=fewer_with_none, records=STATES,
    ),
    "enqueue": Event(
        enqueue(loaded=False),
        lambda b: enqueued(b, loaded=False), jobs=fewer_with_none, records=STATES,
    ),
    "enqueue of what nobody can read": Event(
        enqueue(loaded=False, owing=False),
        lambda b: enqueued(b, loaded=False, owing=False), jobs=fewer_with_none, records=STATES,
    ),
    "reopen": Event(reopen, reopened, jobs=fewer_with_none, records=STATES),
    "reopen and forget": Event(reopen_and_forget, reopened, jobs=with_none),
}  # fmt: skip


# the worker's way
def held_jobs(rows: Sequence[Planted], token: str | None = TOKEN) -> list[Any]:
    return [row.job(token=token, claimed_seq=state.claimed_seq or state.seq)
            for row in rows if (state := row.jobs[0]) is not None]  # fmt: skip


def finishing(seq: str, token: str = TOKEN, by_hand: bool = False) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> Sequence[bool]:
        finishes = []
        for row, job in zip(rows, held_jobs(rows, token), strict=True):
            assert row.jobs[0] is not None
            done = job.claimed_seq if seq == "claimed" else row.jobs[0].seq
            change = Change(row.record, 1, "default", KIND, row.id, done)
            finishes.append(Finish(job, None if by_hand else change, worker="worker"))
        return bench.store.leases.finish(finishes)

    return apply


def if_held(rule: Callable[[JobState], JobState]) -> Callable[[Before], JobState | None]:
    """Only the holder of the token ends a job."""

    def after(before: Before) -> JobState | None:
        job = before.job
        return rule(job) if job is not None and job.held_by(TOKEN) else job

    return after


def as_it_was(before: Before) -> JobState | None:
    return before.job


def is_held(job: JobState) -> bool:
    return job.held_by(TOKEN)


def is_done(job: JobState) -> bool:
    return is_held(job) or job.finished_by(TOKEN, job.claimed_seq or job.seq)


def noted(outcome: str) -> Callable[[JobState], tuple[str, int, int] | None]:
    return lambda job: (outcome, job.attempts, job.claimed_seq or 0) if is_held(job) else None


def failing(retry_at: float | None, token: str = TOKEN) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> Sequence[object]:
        jobs = held_jobs(rows, token)
        return bench.store.leases.fail([Failure(job, "bad", retry_at, "worker") for job in jobs])

    return apply


def failed(retry_at: float | None) -> Event:
    def noted_as(job: JobState) -> tuple[str, int, int] | None:
        end = fail(job, "bad", retry_at, NOW).status
        return noted("failed" if end is Status.FAILED else "retry")(job)

    return Event(
        failing(retry_at),
        if_held(lambda job: fail(job, "bad", retry_at, NOW)),
        lambda job: fail(job, "bad", retry_at, NOW).status if is_held(job) else None,
        noted_as,
    )


def releasing(token: str = TOKEN, **how: Any) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> Sequence[bool]:
        return bench.store.leases.release(held_jobs(rows, token), **how)

    return apply


def released(**how: Any) -> Event:
    return Event(releasing(**how), if_held(lambda job: release(job, **how)), is_held)


def renewing(token: str = TOKEN) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> Sequence[bool]:
        return bench.store.leases.renew(held_jobs(rows, token), LEASE)

    return apply


def fencing(bench: Bench, rows: Sequence[Planted]) -> Sequence[bool]:
    return bench.store.leases.fence(held_jobs(rows), LEASE)[1]


def as_claimed() -> list[JobState]:
    """Held, and nothing came since: what a whole batch mostly is."""
    return [job for job in by_two_ranks() if job.held and not job.overtaken]


def claimed_together() -> list[JobState]:
    """The same, and something came since for some of them."""
    return [job for job in by_two_ranks() if job.held]


def of_two_claims() -> list[JobState]:
    return [*by_two_ranks(), *expired(by_two_ranks())]


def recovering(threshold: float | None = None) -> Apply:
    def apply(bench: Bench, rows: Sequence[Planted]) -> None:
        limit = len(rows)
        while bench.store.leases.recover(threshold=threshold, limit=limit):
            pass

    return apply


def recovered(before: Before) -> JobState | None:
    job = before.job
    return expire(job, NOW) if job is not None and job.held and job.token == LOST else job


def crashed(job: JobState) -> tuple[str, int, int] | None:
    lost = job.held and job.token == LOST
    return ("crashed", job.attempts, job.claimed_seq or 0) if lost else None


def stuck(before: Before) -> JobState | None:
    job = before.job
    return expire(job, NOW) if job is not None and job.held else job


LEASES = {
    "renew": Event(renewing(), if_held(lambda job: renew(job, NOW, LEASE)), is_held),
    "fence": Event(fencing, if_held(lambda job: renew(job, NOW, LEASE)), is_held),
    "finish of what was claimed": Event(
        finishing("claimed"),
        if_held(lambda job: finish(job, job.claimed_seq or 0, NOW)),
        is_done,
        noted("done"),
    ),
    "finish by hand": Event(
        finishing("claimed", by_hand=True),
        if_held(lambda job: finish(job, job.claimed_seq or 0, NOW)),
        is_done,
        noted("done"),
        jobs=lambda: [job for job in by_two_ranks() if job.op is not Op.OPEN],
    ),
    "finish of a whole claim": Event(
        finishing("claimed"),
        if_held(lambda job: finish(job, job.seq, NOW)),
        is_done,
        noted("done"),
        jobs=as_claimed,
    ),
    "finish of a claim that was overtaken in part": Event(
        finishing("claimed"),
        if_held(lambda job: finish(job, job.claimed_seq or 0, NOW)),
        is_done,
        noted("done"),
        jobs=claimed_together,
    ),
    "finish of what came since": Event(
        finishing("latest"),
        if_held(lambda job: finish(job, job.seq, NOW)),
        is_done,
        lambda job: ("done", job.attempts, job.seq) if is_held(job) else None,
    ),
    "failure": failed(SOON),
    "permanent failure": failed(None),
    "release": released(),
    "release in an outage": released(error="away"),
    "release for later": released(error="away", due=SOON),
    "renew by another": Event(renewing("another"), as_it_was, lambda _: False),
    "finish by another": Event(finishing("claimed", "another"), as_it_was, lambda _: False),
    "failure of another": Event(failing(SOON, "another"), as_it_was, lambda _: None),
    "release by another": Event(releasing("another"), as_it_was, lambda _: False),
    "expiry": Event(recovering(), recovered, attempt=crashed, jobs=of_two_claims),
    "recovery of what is stuck": Event(
        recovering(500.0),
        stuck,
        attempt=lambda job: ("crashed", job.attempts, job.claimed_seq or 0) if job.held else None,
    ),
}  # fmt: skip


# care
def purging(status: Status, before: float, boxed: bool = False) -> Event:
    return Event(
        lambda bench, rows: bench.store.jobs.purge(status, before, boxed=boxed, limit=len(rows)),
        lambda b: None if b.job and is_purged(b.job, status, before, boxed=boxed) else b.job,
    )


def retried(before: Before, most: int | None = None) -> JobState | None:
    job = before.job
    if job is None or job.status not in RETRIED or (most is not None and job.attempts >= most):
        return job
    return retry(job, NOW)


CARE = {
    "retry of all": Event(
        lambda bench, _: bench.store.jobs.retry_failed("default"), retried
    ),
    "retry of few attempts": Event(
        lambda bench, _: bench.store.jobs.retry_failed("default", 2),
        lambda b: retried(b, 2),
    ),
    "retry of another tenant's": Event(
        lambda bench, _: bench.store.jobs.retry_failed("another"), as_it_was
    ),
    "purge of done jobs": purging(Status.DONE, OLD + 1),
    "purge of dead letters": purging(Status.FAILED, OLD + 1),
    "purge of boxes": purging(Status.FAILED, OLD + 1, boxed=True),
    "purge of nothing": purging(Status.FAILED, OLD, boxed=True),
}  # fmt: skip

EVENTS = CHANGES | LEASES | CARE
