"""What stands behind a claim: one row for its leases, and jobs that are finished in place."""

from support import postgres
from support.processes import until
from support.world import KIND, World, job_of

CLAIMS = "select held, expires_at, cardinality(jobs) from evervec.claims order by expires_at"


def enqueue(world: World, count: int) -> None:
    world.ev.queue.enqueue_many(KIND, range(count))


def test_each_of_many_ids_gets_its_own_job(world: World) -> None:
    ids = [str(7 * n % 300) for n in range(300)]
    results = world.ev.queue.enqueue_many(KIND, [*ids, ids[5]])
    jobs = world.ev.queue.claim(300)
    assert [job.record_id for job in jobs] == ids  # in the order of their arrival
    assert [r.job_id for r in results[:300]] == [job.job_id for job in jobs]
    assert results[300] == (results[5].job_id, False, None)


def test_a_claims_row_goes_with_the_last_of_its_jobs(world: World, url: str) -> None:
    enqueue(world, 5)
    jobs = world.ev.queue.claim(5)
    world.ev.queue.finish_many(jobs[:2])
    assert [(held, count) for held, _, count in postgres.execute(url, CLAIMS)] == [(3, 5)]
    world.ev.queue.finish_many(jobs)  # three, and two that were finished before
    assert postgres.execute(url, CLAIMS) == []


def test_what_is_not_finished_is_let_go_when_its_time_has_come(world: World, url: str) -> None:
    enqueue(world, 4)
    a, b, c, d = world.ev.queue.claim(4)
    world.ev.queue.release(a)
    world.ev.queue.fail(b, "no")
    world.ev.queue.fail(c, "never", permanent=True)
    world.ev.queue.finish(d)
    world.clock.move(59)
    assert not world.ev.store.any_expired()
    assert len(postgres.execute(url, CLAIMS)) == 1
    world.clock.move(2)
    assert not world.ev.store.any_expired()
    assert postgres.execute(url, CLAIMS) == []


def test_renewed_leases_are_looked_at_again_when_the_first_of_them_ends(
    world: World, url: str
) -> None:
    enqueue(world, 3)
    jobs = world.ev.queue.claim(3)
    first = postgres.execute(url, CLAIMS)[0][1]
    world.clock.move(20)
    world.ev.queue.renew_many(jobs[1:])
    world.clock.move(10)
    world.ev.queue.renew(jobs[2])
    world.clock.move(31)
    assert world.ev.store.any_expired()  # the one that was not renewed
    assert [job.job_id for job in world.ev.store.recover()] == [jobs[0].job_id]
    assert not world.ev.store.any_expired()
    assert postgres.execute(url, CLAIMS)[0][1] == first + 20
    world.clock.move(20)
    assert [job.job_id for job in world.ev.store.recover()] == [jobs[1].job_id]
    world.ev.queue.finish(jobs[2])
    assert world.ev.queue.recover_stuck() == 0


def test_a_lease_that_was_renewed_for_less_ends_then(world: World, url: str) -> None:
    enqueue(world, 2)
    first, second = world.ev.queue.claim(2)
    assert world.ev.store.renew([first], 10.0) == [True]
    world.clock.move(11)
    assert world.ev.store.any_expired()
    assert [job.job_id for job in world.ev.store.recover()] == [first.job_id]
    shorter = "select evervec.renew_embedding_queue_item($1, $2, 10)"
    assert postgres.execute(url, shorter, second.job_id, second.token) == [(True,)]
    world.clock.move(11)
    assert [job.job_id for job in world.ev.store.recover()] == [second.job_id]


def test_an_older_claim_of_a_job_does_not_end_its_present_lease(world: World) -> None:
    enqueue(world, 1)
    world.ev.queue.release(world.ev.queue.claim(1)[0])
    world.clock.move(30)
    held = world.ev.queue.claim(1)[0]
    world.clock.move(31)  # the first claim's time has come
    assert not world.ev.store.any_expired()
    assert world.ev.queue.recover_stuck() == 0
    world.ev.queue.finish(held)
    assert job_of(world.ev, "0").completed_at is not None


def test_a_claimed_job_is_finished_in_place(world: World, url: str) -> None:
    """No index learns of it: PostgreSQL counts such updates (HOT)."""
    counted = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'jobs'"

    def counts() -> tuple[int, int]:
        found: tuple[int, int] = postgres.execute(url, counted)[0]
        return found

    def finished_in_place() -> int:
        all_before, in_place_before = counts()
        enqueue(world, 300)
        world.ev.queue.finish_many(world.ev.queue.claim(300))
        until(lambda: counts()[0] >= all_before + 600, "claim and finish to be counted")
        return counts()[1] - in_place_before

    # all but those of pages that were full; whoever looks at that moment keeps them so
    assert any(finished_in_place() > 240 for _ in range(3))
