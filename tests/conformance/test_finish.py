"""Finishing: only by the holder of the token, once, with ledger and history together."""

import threading

import pytest

from evervec import LeaseLost, Outcome, Status
from evervec.stores.values import Finish
from support.world import (
    KIND,
    START,
    World,
    add_all,
    assert_in_step,
    claim_one,
    held,
    job_of,
    paragraph,
    step,
    work,
)


def test_a_finished_job_is_done_with_its_attempt_kept(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    world.clock.move(2)
    step(world.ev, jobs)
    job = job_of(world.ev, "1")
    assert (job.status, job.error, job.lease_expires_at) == (Status.DONE, None, None)
    assert job.completed_at is not None
    assert job.completed_at.timestamp() == START + 2
    (attempt,) = world.ev.queue.history(KIND, "1")
    assert (attempt.attempt, attempt.seq, attempt.outcome) == (1, ticket.seq, Outcome.DONE)
    assert (attempt.chunks_embedded, attempt.chunks_reused) == (1, 0)
    assert attempt.started_at is not None
    assert (attempt.finished_at - attempt.started_at).total_seconds() == 2
    assert attempt.worker == world.ev.queue.worker
    assert attempt.error is None
    assert attempt.embedding_version == job.embedding_version != ""


def test_a_caller_with_an_index_of_its_own_only_marks_the_job_done(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.finish(claim_one(world.ev))
    assert job_of(world.ev, "1").status is Status.DONE
    assert held(world.ev) == {}


def test_a_finish_repeated_with_the_same_token_changes_nothing(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    step(world.ev, jobs)
    before = job_of(world.ev, "1")
    world.clock.move(5)
    world.ev.queue.finish(jobs[0])
    assert job_of(world.ev, "1") == before
    assert len(world.ev.queue.history(KIND, "1")) == 1


def test_a_finish_repeated_after_a_newer_version_came_does_not_touch_it(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    step(world.ev, jobs)
    world.ev.add(KIND, "beta", id="1")
    world.ev.queue.finish(jobs[0])
    assert job_of(world.ev, "1").status is Status.PENDING
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_after_its_lease_was_taken_back_a_finish_raises_lease_lost(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    job = claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    for late in ("while it waits", "while another has it", "when another has done it"):
        with pytest.raises(LeaseLost, match=str(job.job_id)):
            world.ev.queue.finish(job)
        if late == "while it waits":
            new = claim_one(world.ev)
        elif late == "while another has it":
            world.ev.queue.finish(new)
    assert job_of(world.ev, "1").status is Status.DONE
    assert [a.outcome for a in world.ev.queue.history(KIND, "1")] == [
        Outcome.CRASHED, Outcome.DONE,
    ]  # fmt: skip


def test_a_job_that_was_never_claimed_cannot_be_finished(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    with pytest.raises(LeaseLost):
        world.ev.queue.finish(job_of(world.ev, "1"))
    assert job_of(world.ev, "1").status is Status.PENDING


def test_a_released_failed_or_cancelled_job_cannot_be_finished(world: World) -> None:
    add_all(world.ev, KIND, "a", "b", "c")
    released, failed, cancelled = world.ev.queue.claim(3)
    world.ev.queue.release(released)
    world.ev.queue.fail(failed, "bad", permanent=True)
    world.ev.queue.fail(cancelled, "bad", permanent=True)
    world.ev.queue.cancel(cancelled.job_id)
    assert world.ev.queue.finish_many([released, failed, cancelled]) == [False, False, False]


def test_a_bulk_finish_tells_for_each_whether_it_was_taken(world: World) -> None:
    add_all(world.ev, KIND, *"abcd")
    jobs = world.ev.queue.claim(4)
    world.ev.queue.release(jobs[1])
    world.ev.queue.finish(jobs[3])
    assert world.ev.queue.finish_many(jobs) == [True, False, True, True]
    assert world.ev.queue.finish_many([]) == []


@pytest.mark.every_index
def test_an_update_while_it_is_processed_gives_another_pass(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=1)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    ticket = world.ev.add(KIND, "beta", id="1", max_attempts=1)
    assert job_of(world.ev, "1").status is Status.PROCESSING
    world.ev.pipeline.embed(batch)
    assert world.ev.pipeline.write(batch).succeeded == 1
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.seq) == (Status.PENDING, 0, ticket.seq)
    assert world.ev.store.jobs.settled([("default", ticket)]) == [None]
    work(world.ev)
    assert world.embedder.texts == ["alpha", "beta"]
    assert world.ev.store.jobs.settled([("default", ticket)]) == [Status.DONE]
    assert_in_step(world.ev, {"1": "beta"})


def test_an_update_between_claim_and_load_costs_no_second_embedding(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    world.ev.add(KIND, "beta", id="1")
    step(world.ev, jobs)
    assert world.embedder.texts == ["beta"]
    assert job_of(world.ev, "1").status is Status.DONE
    assert_in_step(world.ev, {"1": "beta"})


def test_an_earlier_ticket_is_settled_by_the_finish_of_a_later_version(world: World) -> None:
    early = world.ev.add(KIND, "alpha", id="1")
    world.ev.add(KIND, "beta", id="1")
    work(world.ev)
    assert world.ev.wait(early, 0).status is Status.DONE


@pytest.mark.every_index
def test_a_late_finish_of_an_older_version_does_not_replace_a_newer_one(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    late, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.pipeline.embed(late)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    world.ev.add(KIND, "beta", id="1")
    work(world.ev)
    assert world.ev.pipeline.write(late).lost == 1
    assert_in_step(world.ev, {"1": "beta"})


@pytest.mark.every_index
def test_when_writing_points_fails_nothing_of_the_finish_stays(world: World) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the index broke")

    world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    batch, _ = world.ev.pipeline.prepare(jobs)
    world.ev.pipeline.embed(batch)
    finish = batch.make_finish(batch.items[0], world.ev.queue.worker)
    with pytest.raises(RuntimeError, match="the index broke"):
        world.ev.store.leases.finish([finish], broken)
    assert job_of(world.ev, "1").status is Status.PROCESSING
    assert world.ev.queue.history(KIND, "1") == []
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert not record.embedded
    assert world.ev.pipeline.write(batch).succeeded == 1
    assert_in_step(world.ev, {"1": "alpha"})


@pytest.mark.every_index
def test_unchanged_chunks_are_not_embedded_again_wherever_they_moved(world: World) -> None:
    a, b, c, d = (paragraph(word) for word in ("alpha", "beta", "gamma", "delta"))
    world.ev.add(KIND, "\n\n".join((a, b, c)), id="1")
    work(world.ev)
    before = set(world.embedder.texts)
    assert before == {a, b, c}
    moved = "\n\n".join((c, d, a))
    world.ev.add(KIND, moved, id="1")
    work(world.ev)
    assert world.embedder.texts[3:] == [d]
    last = world.ev.queue.history(KIND, "1")[-1]
    assert (last.chunks_embedded, last.chunks_reused) == (1, 2)
    assert_in_step(world.ev, {"1": moved})


@pytest.mark.every_index
def test_a_piece_that_stands_twice_in_a_record_is_one_point(world: World) -> None:
    text = "\n\n".join([paragraph("same")] * 4)
    world.ev.add(KIND, text, id="1")
    work(world.ev)
    assert len(world.embedder.texts) == 1
    assert_in_step(world.ev, {"1": text})


def test_opposite_bulk_finishes_at_the_same_moment_both_end(world: World) -> None:
    add_all(world.ev, KIND, *("x" * (n + 1) for n in range(100)))
    jobs = world.ev.queue.claim(100)
    start, results = threading.Barrier(2), []

    def finish(order: int) -> None:
        start.wait()
        results.append(world.ev.store.leases.finish([Finish(job) for job in jobs[::order]]))

    threads = [threading.Thread(target=finish, args=(order,)) for order in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[True] * 100] * 2
    assert all(len(world.ev.queue.history(KIND, str(n))) == 1 for n in range(100))


def test_finish_and_recovery_at_the_same_moment_never_reset_finished_work(world: World) -> None:
    add_all(world.ev, KIND, *("x" * (n + 1) for n in range(100)))
    jobs = world.ev.queue.claim(100)
    world.clock.move(61)
    start = threading.Barrier(2)
    taken: list[bool] = []

    def finish() -> None:
        start.wait()
        for job in jobs:
            taken.extend(world.ev.queue.finish_many([job]))

    def recover() -> None:
        start.wait()
        while world.ev.store.leases.recover(limit=10):
            pass

    threads = [threading.Thread(target=finish), threading.Thread(target=recover)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job, done in zip(jobs, taken, strict=True):
        found = world.ev.queue.get(job.job_id)
        assert found is not None
        assert found.status is (Status.DONE if done else Status.PENDING)
