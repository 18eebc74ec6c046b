"""The attempt that finished a job is in the job's own row, until the row is needed for the next."""

from datetime import timedelta

from evervec import Attempt, Outcome, Status
from support import postgres
from support.world import DAY, KIND, World, add_all, claim_one, work

WRITTEN = "select count(*) from evervec.attempts"


def outcomes(world: World, id: str = "0") -> list[tuple[int, Outcome]]:
    return [(a.attempt, a.outcome) for a in world.ev.queue.history(KIND, id)]


def the_only(attempts: list[Attempt]) -> Attempt:
    (one,) = attempts
    return one


def test_a_finish_writes_no_second_row(world: World, url: str) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    assert postgres.execute(url, WRITTEN) == [(0,)]
    attempt = the_only(world.ev.queue.history(KIND, "0"))
    assert (attempt.attempt, attempt.outcome, attempt.chunks_embedded) == (1, Outcome.DONE, 1)
    assert attempt.worker == world.ev.queue.worker
    assert attempt.started_at is not None
    assert attempt.started_at <= attempt.finished_at


def test_an_attempt_stays_the_same_when_its_job_is_enqueued_again(world: World, url: str) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    before = the_only(world.ev.queue.history(KIND, "0"))
    world.clock.move(1)
    world.ev.add(KIND, "beta", id="0")
    assert world.ev.queue.history(KIND, "0") == [before]
    assert postgres.execute(url, WRITTEN) == [(1,)]
    work(world.ev)
    assert world.ev.queue.history(KIND, "0")[0] == before
    assert outcomes(world) == [(1, Outcome.DONE)] * 2


def test_attempts_are_listed_in_the_order_in_which_they_ended(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    world.ev.queue.fail(claim_one(world.ev), "not yet")
    world.clock.move(DAY)
    work(world.ev)
    world.clock.move(1)
    world.ev.add(KIND, "beta", id="0")
    world.ev.queue.fail(claim_one(world.ev), "no", permanent=True)
    assert outcomes(world) == [(1, Outcome.RETRY), (2, Outcome.DONE), (1, Outcome.FAILED)]


def test_a_lease_that_was_renewed_ends_in_the_same_way(world: World, url: str) -> None:
    add_all(world.ev, KIND, "alpha")
    job = claim_one(world.ev)
    world.ev.queue.renew(job)
    world.ev.queue.finish(job)
    assert postgres.execute(url, WRITTEN) == [(0,)]
    assert outcomes(world) == [(1, Outcome.DONE)]


def test_a_finish_that_was_overtaken_is_one_attempt(world: World) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    world.clock.move(1)
    world.ev.add(KIND, "beta", id="0")
    job = claim_one(world.ev)
    world.ev.add(KIND, "gamma", id="0")
    world.clock.move(1)
    world.ev.queue.finish(job)
    assert outcomes(world) == [(1, Outcome.DONE)] * 2
    world.clock.move(1)
    work(world.ev)
    assert outcomes(world) == [(1, Outcome.DONE)] * 3


def test_a_finish_in_sql_after_one_by_a_worker_is_one_attempt(world: World, url: str) -> None:
    add_all(world.ev, KIND, "alpha")
    work(world.ev)
    world.clock.move(1)
    world.ev.add(KIND, "beta", id="0")
    job = claim_one(world.ev)
    finish = "select evervec.finish_embedding_queue_item($1, $2)"
    assert postgres.execute(url, finish, job.job_id, job.token) == [(True,)]
    assert outcomes(world) == [(1, Outcome.DONE)] * 2


def test_a_purge_of_done_jobs_leaves_their_attempts(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    before = world.ev.queue.history(KIND, "0")
    world.clock.move(1)
    assert world.ev.queue.purge_done(timedelta()) == 2
    assert world.ev.queue.history(KIND, "0") == before


def test_a_large_table_is_purged_with_the_attempts_in_it(world: World, url: str) -> None:
    list(world.ev.add_many(KIND, ({"id": n, "text": "x"} for n in range(300))))
    while jobs := world.ev.queue.claim(100):
        world.ev.queue.finish_many(jobs)
    world.ev.add(KIND, "again", id="0")  # its attempt is in a row of its own now
    world.clock.move(DAY)
    purged = [0, 0]
    while any(some := world.ev.store.jobs.purge_ended(world.clock.now, 100)):
        purged = [sum(counts) for counts in zip(purged, some, strict=True)]
    assert purged == [299, 300]
    assert [job.status for job in world.ev.queue.jobs()] == [Status.PENDING]
