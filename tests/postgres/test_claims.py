"""What stands behind a claim: one row for its leases, and jobs that are finished in place."""

from contextlib import closing

import pytest

from evervec import Status
from evervec.stores.postgres import PostgresStore
from evervec.stores.postgres.leases import CLAIMED
from support import postgres
from support.processes import until
from support.world import KIND, World, assert_in_step, job_of, work

CLAIMS = "select held, expires_at, cardinality(job_ids) from evervec.claims order by expires_at"


def enqueue(world: World, count: int) -> None:
    world.ev.queue.enqueue_many(KIND, range(count))


def test_each_of_many_ids_gets_its_own_job(world: World) -> None:
    ids = [str(7 * n % 300) for n in range(300)]
    results = world.ev.queue.enqueue_many(KIND, [*ids, ids[5]])
    jobs = world.ev.queue.claim(300)
    assert [job.record_id for job in jobs] == ids  # in the order of their arrival
    assert [r.job_id for r in results[:300]] == [job.job_id for job in jobs]
    assert results[300] == (results[5].job_id, False, None)


def test_a_claim_returns_the_columns_that_are_read(world: World, url: str) -> None:
    returned = "select proargnames, proargmodes from pg_proc where proname = 'claim_jobs'"
    ((names, modes),) = postgres.execute(url, returned)
    columns = [name for name, mode in zip(names, modes, strict=True) if mode == "t"]
    assert columns == list(CLAIMED)


def test_a_claims_row_goes_with_the_last_of_its_jobs(world: World, url: str) -> None:
    enqueue(world, 5)
    jobs = world.ev.queue.claim(5)
    world.ev.queue.finish_many(jobs[:2])
    assert [(held, count) for held, _, count in postgres.execute(url, CLAIMS)] == [(3, 3)]
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
    assert not world.ev.store.leases.look_for_expired()
    assert len(postgres.execute(url, CLAIMS)) == 1
    world.clock.move(2)
    assert not world.ev.store.leases.look_for_expired()
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
    assert world.ev.store.leases.look_for_expired()  # the one that was not renewed
    assert [job.job_id for job in world.ev.store.leases.recover()] == [jobs[0].job_id]
    assert not world.ev.store.leases.look_for_expired()
    assert postgres.execute(url, CLAIMS)[0][1] == first + 20
    world.clock.move(20)
    assert [job.job_id for job in world.ev.store.leases.recover()] == [jobs[1].job_id]
    world.ev.queue.finish(jobs[2])
    assert world.ev.queue.recover_stuck() == 0


def test_a_lease_that_was_renewed_for_less_ends_then(world: World, url: str) -> None:
    enqueue(world, 2)
    first, second = world.ev.queue.claim(2)
    assert world.ev.store.leases.renew([first], 10.0) == [True]
    world.clock.move(11)
    assert world.ev.store.leases.look_for_expired()
    assert [job.job_id for job in world.ev.store.leases.recover()] == [first.job_id]
    shorter = "select evervec.renew_embedding_queue_item($1, $2, 10)"
    assert postgres.execute(url, shorter, second.job_id, second.token) == [(True,)]
    world.clock.move(11)
    assert [job.job_id for job in world.ev.store.leases.recover()] == [second.job_id]


def test_an_older_claim_of_a_job_does_not_end_its_present_lease(world: World) -> None:
    enqueue(world, 1)
    world.ev.queue.release(world.ev.queue.claim(1)[0])
    world.clock.move(30)
    held = world.ev.queue.claim(1)[0]
    world.clock.move(31)  # the first claim's time has come
    assert not world.ev.store.leases.look_for_expired()
    assert world.ev.queue.recover_stuck() == 0
    world.ev.queue.finish(held)
    assert job_of(world.ev, "0").completed_at is not None


def test_a_claimed_job_is_finished_in_place(world: World, url: str) -> None:
    """No index learns of it: PostgreSQL counts such updates (HOT). The claim leaves it alone."""
    counted = """select sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint
        from pg_stat_user_tables where relname ~ '^jobs(_[0-9]+)?$'"""

    def counts() -> tuple[int, int]:
        found: tuple[int, int] = postgres.execute(url, counted)[0]
        return found

    def finished_in_place() -> int:
        all_before, in_place_before = counts()
        enqueue(world, 300)
        other = world.open()
        other.queue.finish_many(other.queue.claim(300))
        other.close()  # a connection that stays tells what it did seconds later
        until(lambda: counts()[0] >= all_before + 300, "the finish to be counted")
        # a claim that wrote them too would count as many again; others are told late
        assert counts()[0] < all_before + 600
        return counts()[1] - in_place_before

    # all but those of pages that were full; whoever looks at that moment keeps them so
    assert any(finished_in_place() > 240 for _ in range(3))


def test_a_claim_leaves_its_jobs_as_they_are_and_everybody_sees_who_holds_them(
    world: World, url: str
) -> None:
    enqueue(world, 3)
    before = postgres.execute(url, "select * from evervec.jobs order by job_id")
    first, *_ = jobs = world.ev.queue.claim(2)
    assert postgres.execute(url, "select * from evervec.jobs order by job_id") == before
    seen = world.ev.queue.status(KIND, first.record_id)
    assert seen == first
    assert (seen.status, seen.attempts, seen.worker) == ("processing", 1, world.ev.queue.worker)
    assert {j.job_id for j in world.ev.queue.jobs(status=Status.PROCESSING)} == {
        j.job_id for j in jobs
    }
    assert [j.record_id for j in world.ev.queue.jobs(status=Status.PENDING)] == ["2"]
    stats = world.ev.queue.stats()
    assert (stats.pending, stats.processing) == (1, 2)
    postgres.assert_none_is_astray(url)


@pytest.mark.parametrize("renewed", [False, True])
def test_jobs_of_a_claim_may_end_in_any_way_and_order(
    world: World, url: str, renewed: bool
) -> None:
    queue = world.ev.queue
    enqueue(world, 6)
    a, b, c, d, e, f = jobs = queue.claim(6)
    queue.finish_many([b, d])
    if renewed:
        assert queue.renew_many(jobs) == [True, False, True, False, True, True]
    queue.finish(f)
    queue.fail(a, "no")
    assert queue.finish_many([b, d, f, a]) == [True, True, True, False]  # three were, before
    queue.release(c)
    queue.finish(e)
    ended = {n: job_of(world.ev, n) for n in "012345"}
    assert [job.status for job in ended.values()] == [
        "pending", "done", "pending", "done", "done", "done"
    ]  # fmt: skip
    assert [job.attempts for job in ended.values()] == [1, 1, 0, 1, 1, 1]
    assert [len(queue.history(KIND, n)) for n in "012345"] == [1, 1, 0, 1, 1, 1]
    postgres.assert_none_is_astray(url)


def test_a_claim_that_ran_out_takes_back_only_what_it_still_holds(world: World, url: str) -> None:
    queue = world.ev.queue
    enqueue(world, 3)
    a, b, c = queue.claim(3)
    queue.finish(a)
    world.ev.add(KIND, "alpha", id=a.record_id)
    world.clock.move(50)
    (again,) = queue.claim(3)
    world.clock.move(11)
    assert queue.recover_stuck() == 2
    assert [job_of(world.ev, j.record_id).crashes for j in (a, b, c)] == [0, 1, 1]
    assert queue.finish_many([a, b, c]) == [True, False, False]
    queue.finish(again)
    postgres.assert_none_is_astray(url)


def test_what_a_caller_is_about_to_change_is_not_claimed(world: World, url: str) -> None:
    """Else the finish would wait until that caller commits."""
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    with closing(world.connect()) as conn:
        ev.add(KIND, "beta", id="1", conn=conn)
        assert ev.queue.claim(1) == []
        conn.commit()
    work(ev)
    assert_in_step(ev, {"1": "beta"})
    postgres.assert_none_is_astray(url)


def test_an_open_transaction_on_one_job_holds_up_no_other(world: World, url: str) -> None:
    """Neither another of the same claim, nor those whose leases ran out."""
    ev = world.ev
    for id in "abc":
        ev.add(KIND, "alpha", id=id)
    a, b, c = ev.queue.claim(3)
    with closing(world.connect()) as conn:
        ev.add(KIND, "beta", id="a", conn=conn)
        ev.queue.renew(b)
        ev.queue.release(b)
        world.clock.move(61)
        assert ev.queue.recover_stuck() == 1
        assert job_of(ev, "c").crashes == 1
        conn.commit()
    assert ev.queue.recover_stuck() == 1
    assert (job_of(ev, "a").crashes, job_of(ev, "b").crashes) == (1, 0)
    assert ev.queue.finish_many([a, b, c]) == [False] * 3
    postgres.assert_none_is_astray(url)
    work(ev)
    assert_in_step(ev, {"a": "beta", "b": "alpha", "c": "alpha"})


def test_a_change_of_a_held_job_waits_as_long_as_it_says(world: World, url: str) -> None:
    ev = world.ev
    ev.add(KIND, "alpha", id="1")
    world.clock.move(1)
    (held,) = ev.queue.claim(1)
    ev.add(KIND, "beta", id="1", delay=3600)
    ev.queue.finish(held)
    assert ev.queue.claim(1) == []
    world.clock.move(3601)
    assert len(ev.queue.claim(1)) == 1
    postgres.assert_none_is_astray(url)


def test_a_suspect_that_is_cancelled_meanwhile_is_not_claimed(world: World) -> None:
    store = world.ev.store
    assert isinstance(store, PostgresStore)
    with store.db.reading() as conn:
        assert store.leases._together(conn, [12345], 10) == []  # type: ignore[attr-defined]


def test_no_function_compares_each_job_with_each_other(world: World, url: str) -> None:
    """The store's transactions turn hash joins off, and a function inherits that."""
    without_loops = """
        select proname from pg_proc where pronamespace = 'evervec'::regnamespace
        and 'enable_nestloop=off' = any (proconfig) and {} 'enable_hashjoin=on' = any (proconfig)
    """
    assert postgres.execute(url, without_loops.format("not")) == []
    functions = {name for (name,) in postgres.execute(url, without_loops.format(""))}
    assert functions == {"claim_jobs", "write_leases"}


def test_leases_of_many_claims_are_found_by_their_own(world: World, url: str) -> None:
    """Claims whose ranges of jobs overlap: the second has jobs from before and after the first."""
    world.ev.queue.enqueue_many(KIND, range(6))
    world.ev.queue.enqueue_many(KIND, range(6, 9), priority=5)
    urgent = world.ev.queue.claim(2)
    usual = world.ev.queue.claim(5)
    left = world.ev.queue.claim(10)
    for job in (*urgent, *usual, *left):
        found = world.ev.queue.get(job.job_id)
        assert found is not None
        assert (found.status, found.token) == (Status.PROCESSING, job.token)
    listed = world.ev.queue.jobs(status=Status.PROCESSING)
    assert {job.job_id: job.token for job in listed} == {
        job.job_id: job.token for job in (*urgent, *usual, *left)
    }
    world.ev.queue.release(usual[0])
    assert usual[0].job_id not in {j.job_id for j in world.ev.queue.jobs(status=Status.PROCESSING)}
    postgres.assert_none_is_astray(url)
    postgres.assert_counts_are_exact(url)
