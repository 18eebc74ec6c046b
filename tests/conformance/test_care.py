"""What people do to jobs: retry, cancel, reorder, pause, purge, look at the history."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evervec import EvervecError, InvalidArgument, InvalidTransition, JobFailed, Status
from evervec.model.usage import Spend
from support.world import (
    DAY,
    KIND,
    World,
    add_all,
    assert_in_step,
    claim_one,
    claimed_order,
    fail_for_good,
    held,
    job_of,
    work,
)


def put(world: World, status: Status) -> int:
    """A job in that status."""
    ticket = world.ev.add(KIND, "alpha", id="1", max_attempts=5)
    if status is Status.PROCESSING:
        claim_one(world.ev)
    elif status is Status.DONE:
        work(world.ev)
    elif status is Status.FAILED:
        fail_for_good(world.ev)
    assert job_of(world.ev, "1").status is status
    return ticket.job_id


def test_a_retried_job_starts_from_zero_and_without_its_error(world: World) -> None:
    job_id = put(world, Status.FAILED)
    world.clock.move(5)
    world.ev.queue.retry(job_id)
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error) == (Status.PENDING, 0, None)
    assert job.scheduled_for.timestamp() == world.clock.now
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})


@pytest.mark.parametrize("status", [Status.PENDING, Status.PROCESSING, Status.DONE])
def test_only_a_failed_job_can_be_retried(world: World, status: Status) -> None:
    job_id = put(world, status)
    before = world.ev.queue.get(job_id)
    with pytest.raises(InvalidTransition, match=status.value):
        world.ev.queue.retry(job_id)
    assert world.ev.queue.get(job_id) == before


@pytest.mark.parametrize("status", [Status.PROCESSING, Status.DONE])
def test_only_a_pending_or_failed_job_can_be_cancelled(world: World, status: Status) -> None:
    job_id = put(world, status)
    before = world.ev.queue.get(job_id)
    with pytest.raises(InvalidTransition, match=status.value):
        world.ev.queue.cancel(job_id)
    assert world.ev.queue.get(job_id) == before


@pytest.mark.parametrize("status", [Status.PENDING, Status.FAILED])
def test_a_cancelled_job_is_gone_and_its_history_stays(world: World, status: Status) -> None:
    world.ev.add(KIND, "first", id="1")
    world.ev.queue.fail(claim_one(world.ev), "once")
    job_id = put(world, status)
    tried = world.ev.queue.history(KIND, "1")
    assert tried
    world.ev.queue.cancel(job_id)
    assert world.ev.queue.get(job_id) is None
    assert world.ev.queue.status(KIND, "1") is None
    assert world.ev.queue.history(KIND, "1") == tried
    assert world.ev.get(KIND, "1") is not None


def test_who_waits_for_a_cancelled_job_is_told(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.cancel(ticket.job_id)
    with pytest.raises(JobFailed, match="cancelled"):
        world.ev.wait(ticket, 0)


def test_who_waits_for_a_dead_letter_is_told_its_error(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    fail_for_good(world.ev)
    with pytest.raises(JobFailed, match="it is bad"):
        world.ev.wait(ticket, 0)


def test_retry_failed_takes_all_or_those_with_fewer_attempts(world: World) -> None:
    for id, tries in (("1", 1), ("2", 2), ("3", 3)):
        world.ev.add(KIND, "x", id=id, max_attempts=tries)
    for _ in range(3):
        for job in world.ev.queue.claim(3):
            world.ev.queue.fail(job, "no")
        world.clock.move(1000)
    assert world.ev.queue.stats().failed == 3
    assert world.ev.queue.retry_failed(max_retries=2) == 1
    assert job_of(world.ev, "1").status is Status.PENDING
    assert world.ev.queue.retry_failed() == 2
    assert {job_of(world.ev, id).attempts for id in "123"} == {0}


def test_a_priority_set_later_changes_the_order(world: World) -> None:
    tickets = add_all(world.ev, KIND, *"abc")
    world.ev.queue.set_priority(tickets[2].job_id, 9)
    world.ev.queue.set_priority(tickets[0].job_id, -9)
    assert claimed_order(world.ev) == ["2", "1", "0"]


def test_a_priority_that_no_job_can_have_is_refused(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1", priority=3)
    refused: tuple[Any, ...] = (1 << 62, -(1 << 70), "high", 1.5, None)
    for priority in refused:
        with pytest.raises(EvervecError, match="priority"):
            world.ev.queue.set_priority(ticket.job_id, priority)
        assert job_of(world.ev, "1").priority == 3


def test_a_job_that_is_not_there_or_another_tenants_cannot_be_cared_for(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1")
    fail_for_good(world.ev)
    other = world.tenant("other").queue
    for job_id, queue in ((ticket.job_id, other), (10**9, world.ev.queue)):
        for move in (queue.retry, queue.cancel, lambda j, q=queue: q.set_priority(j, 1)):
            with pytest.raises(InvalidArgument, match=str(job_id)):
                move(job_id)
    assert other.retry_failed() == 0
    assert other.purge_dead(timedelta(-1)) == 0
    assert job_of(world.ev, "1").status is Status.FAILED


def test_purging_done_jobs_keeps_records_vectors_and_younger_jobs(world: World) -> None:
    world.ev.add(KIND, "old", id="1")
    work(world.ev)
    world.clock.move(3 * DAY)
    world.ev.add(KIND, "young", id="2")
    work(world.ev)
    world.ev.add(KIND, "waiting", id="3")
    assert world.ev.queue.purge_done(timedelta(days=2)) == 1
    assert world.ev.queue.status(KIND, "1") is None
    assert job_of(world.ev, "2").status is Status.DONE
    assert job_of(world.ev, "3").status is Status.PENDING
    work(world.ev)
    assert_in_step(world.ev, {"1": "old", "2": "young", "3": "waiting"})


def test_a_moment_may_be_given_instead_of_an_age(world: World) -> None:
    put(world, Status.DONE)
    world.clock.move(10)
    early = datetime.fromtimestamp(world.clock.now - 60, UTC)
    assert world.ev.queue.purge_done(early) == 0
    assert world.ev.queue.purge_done(datetime.fromtimestamp(world.clock.now, UTC)) == 1


def test_an_age_that_is_neither_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="older_than"):
        world.ev.queue.purge_done(7)  # type: ignore[arg-type]


def test_purging_dead_letters_drops_them_and_the_record_can_be_repaired(world: World) -> None:
    put(world, Status.FAILED)
    world.clock.move(10)
    assert world.ev.queue.purge_dead(timedelta(seconds=20)) == 0
    assert world.ev.queue.purge_dead(timedelta(seconds=5)) == 1
    assert world.ev.queue.failed() == []
    assert world.ev.verify(repair=True).missing == 1
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})


def test_purges_of_more_than_one_batch_count_all(world: World) -> None:
    list(world.ev.add_many(KIND, ({"id": n, "text": "x"} for n in range(2100))))
    while jobs := world.ev.queue.claim(1000):
        world.ev.queue.finish_many(jobs)
    world.clock.move(1)
    assert world.ev.store.jobs.purge(Status.DONE, world.clock.now, limit=100) == 100
    assert world.ev.queue.purge_done(timedelta()) == 2000


def test_purged_history_takes_attempts_and_traces_of_the_deleted(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    world.ev.delete(KIND, "0")
    work(world.ev)
    world.clock.move(DAY)
    world.ev.queue.purge_done(timedelta())
    jobs = world.ev.store.jobs
    assert jobs.purge_ended(world.clock.now - 2 * DAY) == (0, 0)
    assert jobs.purge_history(world.clock.now - 2 * DAY) == 0
    assert len(world.ev.queue.history(KIND, "1")) == 1
    assert jobs.purge_ended(world.clock.now) == (0, 3)
    assert world.ev.queue.history(KIND, "1") == []
    assert jobs.purge_history(world.clock.now) >= 1
    assert jobs.purge_ended(world.clock.now) == (0, 0)
    assert jobs.purge_history(world.clock.now) == 0
    assert_in_step(world.ev, {"1": "beta"})
    assert world.ev.add(KIND, "alpha", id="0").is_new
    work(world.ev)
    assert_in_step(world.ev, {"0": "alpha", "1": "beta"})


def test_what_ended_is_purged_by_its_age_and_nothing_else_is(world: World) -> None:
    add_all(world.ev, KIND, *"abcdef")
    jobs = world.ev.queue.claim(5)
    world.ev.queue.finish_many(jobs[:2])
    world.ev.queue.fail_many([(jobs[2], "no", True), (jobs[3], "not yet", False)])
    world.clock.move(DAY)
    world.ev.queue.finish(claim_one(world.ev))
    purge = world.ev.store.jobs.purge_ended
    assert purge(world.clock.now - DAY) == (0, 0)
    assert purge(world.clock.now) == (2, 4)
    assert purge(world.clock.now) == (0, 0)
    stats = world.ev.queue.stats()
    assert (stats.pending, stats.processing, stats.done, stats.failed) == (1, 1, 1, 1)
    world.clock.move(1)
    assert purge(world.clock.now) == (1, 1)


def test_all_that_ended_is_purged_in_batches(world: World) -> None:
    list(world.ev.add_many(KIND, ({"id": n, "text": "x"} for n in range(700))))
    while jobs := world.ev.queue.claim(100):
        world.ev.queue.finish_many(jobs)
    world.clock.move(1)
    purged = []
    while any(some := world.ev.store.jobs.purge_ended(world.clock.now, 100)):
        purged.append(some)
    assert len(purged) > 1
    assert [sum(counts) for counts in zip(*purged, strict=True)] == [700, 700]
    assert world.ev.queue.stats().done == 0


def test_purged_history_spares_what_a_job_still_needs(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    world.ev.add("box", "beta", id="2", boxed=True)
    world.clock.move(10 * DAY)
    world.ev.store.jobs.purge_history(world.clock.now)
    work(world.ev)
    assert held(world.ev).keys() == {("default", "box", "2")}
    assert world.ev.queue.stats().pending == 0


def test_jobs_are_listed_by_status(world: World) -> None:
    add_all(world.ev, KIND, *"abcd")
    a, b, _ = world.ev.queue.claim(3)
    world.ev.queue.finish(a)
    world.ev.queue.fail(b, "no", permanent=True)
    listed = {s: [j.record_id for j in world.ev.queue.jobs(status=s)] for s in Status}
    assert listed == {
        Status.PENDING: ["3"], Status.PROCESSING: ["2"], Status.DONE: ["0"], Status.FAILED: ["1"],
    }  # fmt: skip
    assert len(world.ev.queue.jobs()) == 4
    assert len(world.ev.queue.jobs(limit=2)) == 2
    with pytest.raises(InvalidArgument, match="unknown status 'lost'"):
        world.ev.queue.jobs(status="lost")


def test_the_history_is_told_oldest_first(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.queue.fail(claim_one(world.ev), "first")
    world.clock.move(1000)
    world.ev.queue.fail(claim_one(world.ev), "second")
    world.clock.move(1000)
    work(world.ev)
    history = world.ev.queue.history(KIND, "1")
    assert [a.error for a in history] == ["first", "second", None]
    assert [a.attempt for a in history] == [1, 2, 3]
    assert world.ev.queue.history(KIND, "nobody") == []
    assert world.ev.store.jobs.history(world.ev.tenant, KIND, "1", 2) == history[1:]


def test_how_long_work_has_waited_is_told_by_its_first_job(world: World) -> None:
    store = world.ev.store
    assert store.jobs.waiting_since(-100) is None
    world.ev.add(KIND, "behind all others", priority=-100)
    assert store.jobs.waiting_since(-100) is None
    began = world.clock.now
    world.ev.add(KIND, "alpha", id="1")
    world.ev.add(KIND, "later", id="2", delay=50)
    world.clock.move(10)
    world.ev.add(KIND, "urgent", id="3", priority=5)
    assert store.jobs.waiting_since(-100) == pytest.approx(began)
    assert store.jobs.waiting_since(0) == pytest.approx(began + 10)
    work(world.ev)
    assert store.jobs.waiting_since(-100) == pytest.approx(began + 50)


def test_what_is_gone_is_forgotten(world: World) -> None:
    """Locks that ran out, workers that fell silent, the sums of days long ago."""
    store = world.ev.store
    store.workers.beat("silent", version="1", held=0, done=0)
    store.shared.lock("short", "a", 10)
    store.shared.lock("long", "a", 10_000)
    store.shared.add_spend(
        [Spend(day, "t", KIND, "m", 1, 2, 0.5) for day in ("2020-01-01", "2026-01-01")]
    )
    world.clock.move(3601)
    store.forget_gone("2025-01-01")
    assert store.workers.all() == []
    assert [spend.day for spend in store.shared.spend(None, "")] == ["2026-01-01"]
    locks = "evervec.locks" if world.store_name == "postgres" else "evervec_locks"
    with store.db.reading() as conn:  # type: ignore[attr-defined]
        assert conn.execute(f"select name from {locks}").fetchall() == [("long",)]


def test_a_healthy_store_has_no_troubles(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    assert world.ev.store.troubles(60) == []
