"""Recovery: what a dead worker held is taken back, and its crash counts."""

from datetime import timedelta

import pytest

from evervec import Job, Outcome, Status
from evervec.cli.lost import working
from evervec.indexes.holder import Holder
from support.world import KIND, World, add_all, assert_in_step, claim_one, job_of, work


def crash(world: World, limit: int) -> list[Job]:
    """Claim jobs, and let their worker die."""
    jobs = world.ev.queue.claim(limit)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    return jobs


def test_a_lease_that_ran_out_is_taken_back(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    claim_one(world.ev)
    world.clock.move(59)
    assert world.ev.queue.recover_stuck() == 0
    world.clock.move(2)
    assert world.ev.queue.recover_stuck() == 1
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.token) == (Status.PENDING, 1, None)
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})


def test_a_crash_counts_as_an_attempt_and_is_in_the_history(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=3)
    for _ in range(3):
        claim_one(world.ev)
        world.clock.move(61)
        world.ev.queue.recover_stuck()
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts) == (Status.FAILED, 3)
    assert job.error
    assert [a.outcome for a in world.ev.queue.history(KIND, "1")] == [Outcome.CRASHED] * 3


def test_the_history_names_the_worker_that_crashed(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    assert [a.worker for a in world.ev.queue.history(KIND, "1")] == [world.ev.queue.worker]


def test_a_dead_letter_by_crashes_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=2)
    for _ in range(2):
        assert "Embedding failed permanently" not in caplog.text
        crash(world, 1)
    assert "Embedding failed permanently" in caplog.text


def test_a_crash_of_a_job_among_others_never_ends_its_last_attempt(world: World) -> None:
    """One of them killed the worker. Only a job that is alone can be known to have done it."""
    records = ({"id": n, "text": f"text {n}", "max_attempts": 1} for n in range(5))
    list(world.ev.add_many(KIND, records))
    crash(world, 5)
    stats = world.ev.queue.stats()
    assert (stats.pending, stats.failed) == (5, 0)
    (first,) = crash(world, 5)  # alone
    assert [job.job_id for job in world.ev.queue.failed()] == [first.job_id]
    assert work(world.ev).succeeded == 4


def test_nor_does_one_after_failures_of_the_provider(world: World) -> None:
    records = ({"id": n, "text": f"text {n}", "max_attempts": 2} for n in range(3))
    list(world.ev.add_many(KIND, records))
    for job in world.ev.queue.claim(3):
        world.ev.queue.fail(job, "refused")
    world.clock.move(60)
    assert len(crash(world, 3)) == 3
    assert world.ev.queue.stats().failed == 0
    assert work(world.ev).succeeded == 3


def test_a_job_is_claimed_with_fewer_others_after_each_crash(world: World) -> None:
    add_all(world.ev, KIND, *(f"text {n}" for n in range(64)))
    assert len(crash(world, 64)) == 64
    first = crash(world, 64)
    assert len(first) == 64 // 16
    ids = {job.job_id for job in first}
    sizes = []
    while jobs := world.ev.queue.claim(64):
        if ids & {job.job_id for job in jobs}:
            sizes.append(len(jobs))
    assert sizes == [1] * 4


@pytest.mark.parametrize(("max_attempts", "company"), [(2, 1), (3, 4)])
def test_a_job_whose_next_crash_would_be_its_last_is_claimed_alone(
    world: World, max_attempts: int, company: int
) -> None:
    for n in range(64):
        world.ev.add(KIND, f"text {n}", id=n, max_attempts=max_attempts)
    assert len(crash(world, 64)) == 64
    assert len(world.ev.queue.claim(64)) == company


def test_a_crash_on_an_older_version_spends_nothing_of_the_newer_one(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=1)
    claim_one(world.ev)
    world.ev.add(KIND, "beta", id="1", max_attempts=1)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


@pytest.mark.parametrize("threshold", [30, 30.0, timedelta(seconds=30)])
def test_a_threshold_takes_back_what_was_claimed_longer_ago(
    world: World, threshold: float | timedelta
) -> None:
    add_all(world.ev, KIND, "a", "b")
    claim_one(world.ev)
    world.clock.move(20)
    claim_one(world.ev)
    world.clock.move(11)
    assert world.ev.queue.recover_stuck(threshold) == 1
    assert job_of(world.ev, "0").status is Status.PENDING
    assert job_of(world.ev, "1").status is Status.PROCESSING


def test_more_than_one_batch_is_taken_back(world: World) -> None:
    add_all(world.ev, KIND, *("x" * (n + 1) for n in range(25)))
    world.ev.queue.claim(25)
    world.clock.move(61)
    assert len(world.ev.store.leases.recover(limit=10)) == 10
    assert world.ev.queue.recover_stuck() == 15
    assert world.ev.queue.stats().pending == 25


def test_finished_work_is_never_reset(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.clock.move(10_000)
    assert world.ev.queue.recover_stuck(0) == 0
    assert job_of(world.ev, "1").status is Status.DONE


def test_a_lease_that_ran_out_but_was_not_taken_back_can_still_be_finished(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    job = claim_one(world.ev)
    world.clock.move(500)
    world.ev.queue.finish(job)
    assert world.ev.queue.recover_stuck() == 0
    assert job_of(world.ev, "1").status is Status.DONE


def test_the_leases_of_a_dead_process_end_at_once(world: World) -> None:
    """Those that a live process holds stay."""
    ev = world.ev
    add_all(ev, KIND, *(f"text {n}" for n in range(4)))
    dead = Holder.here("worker")._replace(started="1")
    name = f"worker {ev.queue.worker}"
    lock = ev.store.shared.lock(name, str(Holder.here("worker")), 60.0)
    assert lock is not None
    ev.queue.claim(3)
    with working(ev) as lost:
        assert lost == 0
    ev.store.shared.unlock(name, lock)
    assert ev.store.shared.lock(name, str(dead), 60.0)
    with working(ev) as lost:
        assert lost == 3
    assert ev.queue.recover_stuck() == 3
    assert {job_of(ev, str(n)).attempts for n in range(4)} == {0, 1}
    work(ev)
    assert ev.queue.stats().done == 4
