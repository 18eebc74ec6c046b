"""The same for records with two versions: what one of them has to read is the other's affair too.

The first version serves. Each pair of states that the rules tell apart is one record.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import pytest

from evervec.model.jobs import Op, Status
from evervec.model.records import ModelSpec
from evervec.queue.transitions import (
    Ask,
    JobState,
    Work,
    beside_box,
    debt,
    finish,
    follows_box,
    join,
    put,
    takes_box,
    to_enqueue,
    to_reopen,
)
from evervec.stores.values import Draft, Finish
from support.job_bench import FRESH, KIND, Bench, Planted, differences
from support.job_events import NOW, STATES, enqueue, owed, save
from support.job_states import ERROR, LATER, MOST, OLD, SOON, TOKEN

Jobs = tuple[JobState | None, ...]
FIRST, SECOND = 1, 2
"""the numbers of the versions"""


def few(*shapes: str) -> list[JobState]:
    """A job of each op in each of these shapes, at seq 3."""
    made = {
        "pending": JobState(Status.PENDING, Op.EMBED, 3),
        "held": JobState(Status.PROCESSING, Op.EMBED, 3, 3, None, TOKEN, 1),
        "overtaken": JobState(Status.PROCESSING, Op.EMBED, 3, 2, None, TOKEN, 1),
        "done": JobState(Status.DONE, Op.EMBED, 3, 3, 3, TOKEN, 1, completed_at=OLD),
        "failed": JobState(Status.FAILED, Op.EMBED, 3, 3, None, None, 1, error=ERROR,
                           completed_at=OLD),
    }  # fmt: skip
    return [
        replace(
            job, op=op, boxed=op is Op.OPEN and job.status is not Status.DONE, max_attempts=MOST,
            priority=5, scheduled_for=due, started_at=OLD if job.claimed_seq else None,
            lease_expires_at=LATER if job.held else None,
        )
        for (shape, job), op, due in product(made.items(), Op, (OLD, LATER))
        if shape in shapes and (due == OLD) == (op in (Op.EMBED, Op.OPEN))
    ]  # fmt: skip


def moved(job: JobState | None) -> JobState | None:
    """The same two changes later."""
    if job is None:
        return None
    claimed, finished = job.claimed_seq, job.finished_seq
    return replace(
        job, seq=job.seq + 2, claimed_seq=claimed and claimed + 2,
        finished_seq=finished and finished + 2,
    )  # fmt: skip


def pairs_of_debts() -> list[Jobs]:
    some = [None, *few("pending", "held", "done", "failed")]
    reading = [job for job in few("pending") if job.op in (Op.OPEN, Op.LOAD)]
    return [*product(some, some), *_older_and_newer(product(reading, reading))]


def pairs_of_boxes() -> list[Jobs]:
    some = [None, *few("pending", "overtaken", "done", "failed")]
    return list(_older_and_newer(product(some, some)))


def pairs_to_drop() -> list[Jobs]:
    """No worker holds the second."""
    return [jobs for jobs in pairs_of_boxes() if not (jobs[1] and jobs[1].held)]


def opened_first() -> list[Jobs]:
    """The first is in hand."""
    some = [None, *few("pending", "overtaken", "done")]
    return list(_older_and_newer(product(few("held", "overtaken"), some)))


def opened_second() -> list[Jobs]:
    return [jobs[::-1] for jobs in opened_first()]


def _older_and_newer(pairs: Iterable[Jobs]) -> Iterator[Jobs]:
    """Pairs with a box or a row, where the one is older than the other, and where it is newer."""
    for a, b in pairs:
        if any(job and job.op in (Op.OPEN, Op.LOAD) for job in (a, b)):
            yield moved(a), b
            yield a, moved(b)


class Before(NamedTuple):
    """A record's jobs, its state and seq, and the numbers that the event gave to the jobs."""

    jobs: Jobs
    record: str
    seq: int
    fresh: tuple[int, ...]

    def asked(self, version: int, work: Work, **how: Any) -> JobState:
        ask = Ask(work.op, self.fresh[version], NOW, work.box is not None)
        return put(self.jobs[version], ask._replace(**how))

    def debts(self) -> list[Work]:
        return [work for job in self.jobs for work in owed(job)]


Event = tuple[
    Callable[[Bench, Sequence[Planted]], object],
    Callable[[Before], Jobs],
    Callable[[], list[Jobs]],
    tuple[tuple[str, int], ...],
    str,
]
"""what is done, what becomes of the jobs, which those are, the records' states and seqs, and the
state of the second version"""

HOW: Any = {"due": SOON, "priority": 3, "max_attempts": 5}


def everywhere(op: Op, **how: Any) -> Callable[[Before], Jobs]:
    return lambda b: tuple(b.asked(version, Work(op), **how) for version in (0, 1))


def boxed(b: Before) -> Jobs:
    """Only who serves opens it."""
    return b.asked(0, Work(Op.OPEN, "box"), **HOW), b.jobs[1]


def enqueued(*, loaded: bool) -> Callable[[Before], Jobs]:
    def after(b: Before) -> Jobs:
        op = to_enqueue(b.record, loaded)
        work = debt(op, b.debts(), is_loaded=loaded)
        if work.op is not Op.OPEN:
            return everywhere(work.op, **HOW)(b)
        beside = beside_box(op)
        second = b.asked(1, Work(beside), **HOW) if beside else b.jobs[1]
        return b.asked(0, work, **HOW), second

    return after


def reopened(version: int) -> Callable[[Before], Jobs]:
    def after(b: Before) -> Jobs:
        op = to_reopen(b.record)
        work = debt(op, b.debts())
        if work.op is Op.LOAD:  # what is read again may have changed
            return everywhere(Op.LOAD)(b)
        if work.op is Op.OPEN and version == SECOND:
            work = Work(op)
        jobs = list(b.jobs)
        jobs[version - 1] = b.asked(version - 1, work)
        return tuple(jobs)

    return after


def retired(after: Callable[[Before], Jobs]) -> Callable[[Before], Jobs]:
    """Changes are not meant for a retired version, and a row that it alone would read is not owed:
    it may have been replaced since."""

    def beside(b: Before) -> Jobs:
        second = b.jobs[1]
        is_row = second is not None and second.op is Op.LOAD
        counting = b._replace(jobs=(b.jobs[0], None)) if is_row else b
        return after(counting)[0], second

    return beside


def passed_on(b: Before, giver: int) -> JobState | None:
    """The other version's job, when a box must not stay with the giver."""
    box, taker = b.jobs[giver], 1 - giver
    other = b.jobs[taker]
    if box is None or not box.boxed:
        return other
    op, seq = (other.op, other.seq) if other else (None, None)
    if not takes_box(b.seq, op, seq, box.seq):
        return other
    how = {"due": max(NOW, box.scheduled_for), "priority": box.priority,
           "max_attempts": box.max_attempts}  # fmt: skip
    return b.asked(taker, Work(Op.OPEN, "box"), **how)


def switched(b: Before) -> Jobs:
    """A box goes from the version that served to the one that serves."""
    first, second = b.jobs[0], passed_on(b, 0)
    return (None if first and first.boxed else first), second


def dropped(b: Before) -> Jobs:
    return passed_on(b, 1), None


def orphaned(b: Before) -> Jobs:
    """Jobs of a version that is not there; those that are held or done wait for their end."""
    second = b.jobs[1]
    if second and (second.boxed or second.status in (Status.PENDING, Status.FAILED)):
        second = None
    return passed_on(b, 1), second


def opening(version: int) -> Callable[[Bench, Sequence[Planted]], None]:
    """The holder of a box finishes it, whatever the job wants since."""

    def apply(bench: Bench, rows: Sequence[Planted]) -> None:
        finishes = []
        for row in rows:
            held = row.jobs[version]
            if held is not None and held.held:
                job = row.job(version, op=Op.OPEN)
                finishes.append(Finish(job, reveal=_draft(row.id), worker="worker"))
        bench.store.leases.finish(finishes)

    return apply


def _draft(id: str) -> Draft:
    return Draft(id, "marble", b"new", boxed=True)


def opened(version: int) -> Callable[[Before], Jobs]:
    def after(b: Before) -> Jobs:
        mine, other = b.jobs[version], b.jobs[1 - version]
        if mine is None or not mine.held:
            return b.jobs
        seq = mine.claimed_seq or 0
        how = {"priority": mine.priority, "max_attempts": mine.max_attempts}
        op, other_seq = (other.op, other.seq) if other else (None, None)
        if version == 0 and follows_box(op, other_seq, seq):
            other = b.asked(1, Work(Op.EMBED), **how)
        elif version == 1 and takes_box(b.seq, op, other_seq, seq):
            other = b.asked(0, Work(Op.OPEN, "box"), **how)
        jobs = (finish(mine, seq, NOW), other)
        return jobs if version == 0 else jobs[::-1]

    return after


def drop(bench: Bench, rows: Sequence[Planted]) -> None:
    while bench.store.versions.drop(SECOND, len(rows)):
        pass


def deleting(bench: Bench, rows: Sequence[Planted]) -> None:
    bench.store.changes.delete("default", KIND, [row.id for row in rows])


def reopening(version: int) -> Callable[[Bench, Sequence[Planted]], None]:
    def apply(bench: Bench, rows: Sequence[Planted]) -> None:
        bench.store.changes.reopen(version, [row.record for row in rows], forget=False)

    return apply


_LIVE = (("live", 1),)
_ALL = tuple((state, 1) for state in STATES)
_AGES = (("live", 1), ("live", 4), ("hidden", 1))
_ADD, _BOXED_ADD = save("slate", b"new"), save("slate", b"new", boxed=True)

EVENTS: dict[str, Event] = {
    "add": (_ADD, everywhere(Op.EMBED, **HOW), pairs_of_debts, _LIVE, "building"),
    "boxed add": (_BOXED_ADD, boxed, pairs_of_debts, _LIVE, "standby"),
    "delete": (deleting, everywhere(Op.DELETE), pairs_of_debts, _LIVE, "standby"),
    "enqueue of a row": (
        enqueue(loaded=True), enqueued(loaded=True), pairs_of_debts, _LIVE, "building"
    ),
    "enqueue": (enqueue(loaded=False), enqueued(loaded=False), pairs_of_debts, _ALL, "building"),
    "reopen of the first": (reopening(FIRST), reopened(FIRST), pairs_of_debts, _ALL, "building"),
    "reopen of the second": (reopening(SECOND), reopened(SECOND), pairs_of_debts, _ALL, "standby"),
    "add beside a retired version": (
        _ADD, retired(everywhere(Op.EMBED, **HOW)), pairs_of_debts, _LIVE, "retired"
    ),
    "enqueue beside a retired version": (
        enqueue(loaded=False), retired(enqueued(loaded=False)), pairs_of_debts, _LIVE, "retired"
    ),
    "reopen of a retired version": (
        reopening(SECOND), lambda b: b.jobs, pairs_of_debts, _LIVE, "retired"
    ),
    "join": (
        lambda bench, rows: bench.store.versions.join(SECOND, len(rows)),
        lambda b: (b.jobs[0], join(b.jobs[1], b.jobs[0])),
        pairs_of_debts,
        _LIVE,
        "building",
    ),
    "switch": (
        lambda bench, _: bench.store.versions.switch([SECOND], force=True),
        switched, pairs_of_boxes, _AGES, "building",
    ),
    "retire": (
        lambda bench, _: bench.store.versions.retire([SECOND]),
        lambda b: b.jobs, pairs_of_debts, _LIVE, "standby",
    ),
    "drop": (drop, dropped, pairs_to_drop, _AGES, "retired"),
    "purge of orphans": (
        lambda bench, rows: bench.store.jobs.purge_orphans(len(rows)),
        orphaned, pairs_of_boxes, _AGES, "",
    ),
    "opening by who serves": (opening(0), opened(0), opened_first, _LIVE, "building"),
    "opening by another": (opening(1), opened(1), opened_second, _AGES, "standby"),
}  # fmt: skip


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_does_to_both_versions_what_the_rules_say(bench: Bench, name: str) -> None:
    apply, after, pairs, records, second = EVENTS[name]
    chosen = [jobs for jobs in pairs() if not bench.told or any(job and job.held for job in jobs)]
    rows = bench.plant((Planted(jobs, *record) for jobs in chosen for record in records), second)
    apply(bench, rows)
    found = bench.read()
    before, expected = {}, dict[tuple[int, int], JobState | None]()
    for row in rows:
        fresh = tuple(_fresh(found.get((row.record, version))) for version in (0, 1))
        ends = after(Before(row.jobs, row.state, row.seq, fresh))
        for version in (0, 1):
            before[row.record, version] = (row.state, row.seq, row.jobs)
            expected[row.record, version] = ends[version]
    wrong = list(differences(name, before.items(), expected, found))
    assert not wrong, f"{len(wrong)} of {len(rows)}, first:\n" + "\n".join(wrong[:3])
    bench.check()


def test_a_version_is_not_dropped_while_a_worker_holds_a_job_of_it(bench: Bench) -> None:
    """The worker may be about to write its points."""
    held = [job for job in few("held") if not job.boxed]  # a box is passed on first
    bench.plant((Planted((None, job)) for job in held), "retired")
    before = bench.read()
    assert bench.store.versions.drop(SECOND) is None
    assert bench.read() == before


def _fresh(job: JobState | None) -> int:
    return job.seq if job is not None and job.seq > FRESH else -1


def test_the_beginning_of_a_version_leaves_jobs_alone(bench: Bench) -> None:
    rows = bench.plant(Planted((job,)) for job in few("pending", "held", "done", "failed"))
    before = bench.read()
    bench.store.versions.begin(ModelSpec("third", "own", "model", 8), [KIND])
    assert len(rows) == len(before)
    assert bench.read() == before
