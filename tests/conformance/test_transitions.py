"""Every event meets a job in every state that can exist, on every store, and leaves it as
`evervec.queue.transitions` says.

All states are put into the store in one batch, the event is applied to all of them through the
store's own methods, and each row is compared.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from evervec.errors import InvalidTransition
from evervec.model.jobs import Job, Op, Status
from evervec.queue.transitions import (
    CANCELLED,
    RETRIED,
    Ask,
    JobState,
    claim,
    expire,
    fail,
    finish,
    put,
    release,
    retry,
)
from support.job_bench import FRESH, Bench, Planted, differences
from support.job_events import EVENTS, LEASE, NOW, Before
from support.job_states import (
    ERROR,
    LATER,
    MOST,
    OLD,
    RANKS,
    SOON,
    TOKEN,
    by_two_ranks,
    every_state,
    impossible,
)


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_does_to_every_job_what_the_rules_say(bench: Bench, name: str) -> None:
    event = EVENTS[name]
    jobs = [job for job in event.jobs() if not bench.told or (job is not None and job.held)]
    rows = bench.plant(Planted((job,), state) for job in jobs for state in event.records)
    answers = event.apply(bench, rows)
    found = bench.read()
    before, expected = {}, {}
    for row in rows:
        there = found.get((row.record, 0))
        fresh = there.seq if there is not None and there.seq > FRESH else -1
        before[row.record, 0] = (row.state, row.jobs[0])
        expected[row.record, 0] = event.after(Before(row.jobs[0], row.state, fresh))
    wrong = list(differences(name, before.items(), expected, found))
    assert not wrong, f"{len(wrong)} of {len(rows)}, first:\n" + "\n".join(wrong[:3])
    assert set(found) <= set(before)
    if event.answer is not None:
        assert answers == [event.answer(job) for row in rows if (job := row.jobs[0])]
    notes = {row.record: event.attempt(job) for row in rows if (job := row.jobs[0])}
    assert bench.attempts() == {record: note for record, note in notes.items() if note}
    bench.check()


def test_a_claim_takes_what_is_due_and_counts_the_attempt(bench: Bench) -> None:
    rows = bench.plant(Planted((job,)) for job in by_two_ranks())
    given = dict[int, Job]()
    for suspects in (False, True):
        while jobs := bench.store.leases.claim(
            len(rows), worker="worker", lease=LEASE, suspects=suspects
        ):
            assert len({job.token for job in jobs}) == 1
            assert suspects == any(job.crashes for job in jobs)
            assert jobs[0].token not in {job.token for job in given.values()}
            given.update({job.record: job for job in jobs})
    before, expected = {}, {}
    for row in rows:
        (job,) = row.jobs
        assert job is not None
        before[row.record, 0] = expected[row.record, 0] = job
        if job.status is Status.PENDING and job.scheduled_for <= NOW:
            token = given[row.record].token
            assert token is not None
            expected[row.record, 0] = claim(job, token, NOW, LEASE)
    found = bench.read()
    wrong = list(differences("claim", before.items(), expected, found))
    assert not wrong, f"{len(wrong)} of {len(rows)}, first:\n" + "\n".join(wrong[:3])
    told = {
        job.record: (job.op, job.seq, job.claimed_seq, job.status, job.attempts, job.crashes)
        for job in given.values()
    }
    assert told == {
        record: (job.op, job.seq, job.seq, Status.PROCESSING, job.attempts, job.crashes)
        for (record, _), job in found.items()
        if job.token not in (None, TOKEN)
    }
    bench.check()


def few_states() -> list[JobState]:
    """Where one call changes one job: with a text or a box, all of one rank."""
    rank = RANKS[1][:2]
    some = [s for s in every_state() if (s.priority, s.scheduled_for) == rank]
    return [s for s in some if s.op in (Op.EMBED, Op.OPEN)]


def test_retry_and_cancel_refuse_what_is_not_theirs(bench: Bench) -> None:
    for name, states, call, after in (
        ("retry by hand", RETRIED, bench.store.jobs.retry, lambda job: retry(job, NOW)),
        ("cancel", CANCELLED, bench.store.jobs.cancel, lambda job: None),
    ):
        rows = bench.plant(Planted((job,), "hidden") for job in few_states())
        before, expected = {}, dict[tuple[int, int], JobState | None]()
        for row in rows:
            (job,) = row.jobs
            assert job is not None
            before[row.record, 0] = expected[row.record, 0] = job
            if job.status in states:
                call("default", row.job_id())
                expected[row.record, 0] = after(job)
            else:
                with pytest.raises(InvalidTransition):
                    call("default", row.job_id())
        wrong = list(differences(name, before.items(), expected, bench.read()))
        assert not wrong, f"{len(wrong)} of {len(rows)}, first:\n" + "\n".join(wrong[:3])
        # what never appeared, and no job will make appear, is as good as deleted
        gone = {record for (record, _), job in expected.items() if job is None}
        assert bench.record_states() == {
            row.record: "deleted" if row.record in gone else "hidden" for row in rows
        }
        bench.check()


def test_a_priority_changes_nothing_else(bench: Bench) -> None:
    rows = bench.plant(Planted((job,)) for job in few_states())
    for row in rows:
        bench.store.jobs.set_priority("default", row.job_id(), 4)
    expected = {(row.record, 0): replace(job, priority=4) for row in rows if (job := row.jobs[0])}
    wrong = list(differences("priority", expected.items(), expected, bench.read()))
    assert not wrong, wrong[:3]
    bench.check()


def test_the_states_that_are_tried_are_those_that_can_come_to_be() -> None:
    """From a new job on, by whatever events in whatever order: no other, and all of them."""
    todo = [put(None, Ask(op, 1, OLD, op is Op.OPEN, 0, MOST)) for op in Op]
    seen = set(map(_shape, todo))
    while todo:
        job = todo.pop()
        for made in map(_shape, _next(job)):
            assert impossible(made) is None, (impossible(made), job, made)
            if made not in seen:
                seen.add(made)
                todo.append(made)
    assert {s for s in seen if s.max_attempts == MOST} == set(map(_shape, every_state()))


def _next(job: JobState) -> Iterator[JobState]:
    """What can become of a job by one event."""
    for op, most in product(Op, (MOST, 9)):
        yield put(job, Ask(op, job.seq + 2, OLD, op is Op.OPEN, 0, most))
    if job.status is Status.PENDING:
        yield claim(job, TOKEN, NOW, LEASE)
    if job.status in RETRIED:
        yield retry(job, NOW)
    if job.held:
        assert job.claimed_seq is not None
        for seq in {job.claimed_seq, min(job.claimed_seq + 1, job.seq), job.seq}:
            yield finish(job, seq, NOW)
        for error in (None, ERROR):
            yield release(job, error)
        for retry_at in (None, SOON):
            yield fail(job, ERROR, retry_at, NOW)
        yield expire(job, NOW)


def _shape(job: JobState) -> JobState:
    """Without what only its own number tells apart."""
    known = {s for s in (job.claimed_seq, job.finished_seq, job.seq) if s is not None}
    place = {seq: 2 * n for n, seq in enumerate(sorted(known), 4 - len(known))}
    return replace(
        job,
        seq=place[job.seq],
        claimed_seq=None if job.claimed_seq is None else place[job.claimed_seq],
        finished_seq=None if job.finished_seq is None else place[job.finished_seq],
        attempts=min(job.attempts, MOST + 1),
        crashes=min(job.crashes, 1),
        error=None if job.error is None else ERROR,
        priority=0,
        scheduled_for=OLD,
        completed_at=OLD if job.status in (Status.DONE, Status.FAILED) else None,
        started_at=None if job.claimed_seq is None else OLD,
        lease_expires_at=LATER if job.held else None,
    )
