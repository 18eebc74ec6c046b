"""Failing, releasing and renewing a claimed job."""

import logging

import pytest

from evervec import LeaseLost, Outcome, Status
from support.world import KIND, START, World, add_all, assert_in_step, claim_one, job_of, work


def test_a_failed_attempt_waits_for_its_backoff(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.fail(claim_one(world.ev), "not now")
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error) == (Status.PENDING, 1, "not now")
    assert (job.token, job.lease_expires_at, job.completed_at) == (None, None, None)
    assert START + 0.8 <= job.scheduled_for.timestamp() <= START + 1.2
    assert world.ev.queue.claim(1) == []
    world.clock.move(1.2)
    assert claim_one(world.ev).attempts == 2


def test_the_last_attempt_makes_a_dead_letter(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=2)
    for _ in range(2):
        world.ev.queue.fail(claim_one(world.ev), "no")
        world.clock.move(1000)
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error) == (Status.FAILED, 2, "no")
    assert job.completed_at is not None
    assert world.ev.queue.claim(1) == []
    assert [j.job_id for j in world.ev.queue.failed()] == [job.job_id]
    attempts = world.ev.queue.history(KIND, "1")
    assert [a.outcome for a in attempts] == [Outcome.RETRY, Outcome.FAILED]
    assert [a.attempt for a in attempts] == [1, 2]
    assert [a.error for a in attempts] == ["no", "no"]
    (line,) = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert line.getMessage().startswith("Embedding failed permanently")
    assert line.__dict__["record_id"] == "1"


def test_a_permanent_failure_is_not_tried_again(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.fail(claim_one(world.ev), ValueError("never"), permanent=True)
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error) == (Status.FAILED, 1, "never")


def test_failing_an_older_version_does_not_hold_up_the_newer_one(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", max_attempts=1)
    job = claim_one(world.ev)
    world.ev.add(KIND, "beta", id="1", max_attempts=1)
    world.ev.queue.fail(job, "the old text is bad")
    found = job_of(world.ev, "1")
    assert (found.status, found.attempts) == (Status.PENDING, 0)
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_only_the_holder_can_fail_release_or_renew(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    lost = claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    for move in (
        world.ev.queue.release,
        world.ev.queue.renew,
        lambda job: world.ev.queue.fail(job, "x"),
    ):
        with pytest.raises(LeaseLost):
            move(lost)
    held = claim_one(world.ev)
    for move in (
        world.ev.queue.release,
        world.ev.queue.renew,
        lambda job: world.ev.queue.fail(job, "x"),
    ):
        with pytest.raises(LeaseLost):
            move(lost)
    assert world.ev.queue.get(held.job_id) == held


def test_one_that_lost_its_lease_changes_nothing_of_a_lease_that_was_renewed(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    lost = claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    held = claim_one(world.ev)
    world.ev.queue.renew(held)  # which writes it to the job, where a claim alone did not
    before = world.ev.queue.get(held.job_id)
    for move in (
        world.ev.queue.release,
        world.ev.queue.renew,
        world.ev.queue.finish,
        lambda job: world.ev.queue.fail(job, "x"),
    ):
        with pytest.raises(LeaseLost):
            move(lost)
        assert world.ev.queue.get(held.job_id) == before
    world.ev.queue.finish(held)


def test_a_release_gives_the_attempt_back(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.release(claim_one(world.ev))
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.token) == (Status.PENDING, 0, None)
    assert world.ev.queue.history(KIND, "1") == []
    assert claim_one(world.ev).attempts == 1


def test_a_released_job_keeps_its_place(world: World) -> None:
    for id in ("1", "2"):
        world.ev.add(KIND, "x", id=id)
        world.clock.move(1)
    world.ev.queue.release(claim_one(world.ev))
    assert claim_one(world.ev).record_id == "1"


def test_a_release_of_a_replaced_job_starts_its_attempts_anew(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    for _ in range(3):
        world.ev.queue.fail(claim_one(world.ev), "no")
        world.clock.move(1000)
    job = claim_one(world.ev)
    world.ev.add(KIND, "beta", id="1")
    world.ev.queue.release(job)
    assert job_of(world.ev, "1").attempts == 0


def test_a_release_may_say_why(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    jobs = world.ev.queue.claim(2)
    assert world.ev.queue.release_many(jobs, "the provider is away") == [True, True]
    assert job_of(world.ev, "0").error == "the provider is away"
    assert world.ev.queue.release_many(jobs) == [False, False]


def test_a_renewed_lease_lasts_another_term(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    job = claim_one(world.ev)
    for _ in range(3):
        world.clock.move(59)
        assert world.ev.queue.recover_stuck() == 0
        world.ev.queue.renew(job)
    world.clock.move(61)
    assert world.ev.queue.recover_stuck() == 1


def test_bulk_renewal_tells_which_leases_still_hold(world: World) -> None:
    add_all(world.ev, KIND, *"abc")
    jobs = world.ev.queue.claim(3)
    world.ev.queue.finish(jobs[0])
    world.ev.queue.release(jobs[1])
    assert world.ev.queue.renew_many(jobs) == [False, False, True]


def test_bulk_failure_tells_where_each_went(world: World) -> None:
    add_all(world.ev, KIND, *"abcd")
    a, b, c, d = world.ev.queue.claim(4)
    world.ev.queue.finish(c)
    world.ev.add(KIND, "newer", id="3")
    ends = world.ev.queue.fail_many(
        [(a, "x", False), (b, "x", True), (c, "x", True), (d, "x", True)]
    )
    assert ends == [Status.PENDING, Status.FAILED, None, Status.PENDING]


def test_an_error_of_any_text_can_be_kept(world: World) -> None:
    errors = ("half a pair \ud800", "a NUL \0 inside", "", "x" * 100_000)
    for n, error in enumerate(errors):
        world.ev.add(KIND, "alpha", id=str(n))
        world.ev.queue.fail(claim_one(world.ev), error)
        assert job_of(world.ev, str(n)).status is Status.PENDING
        assert len(world.ev.queue.history(KIND, str(n))) == 1
