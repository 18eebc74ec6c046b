"""Claiming: who gets which job, in which order, for how long."""

import threading

import pytest

from evervec import InvalidArgument, Job, Status
from evervec.stores.sql import fronts
from support.world import KIND, START, World, add_all, claim_one, claimed_order, job_of, work


def test_jobs_come_by_priority_then_time_then_arrival(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "x", id="arrived first")
    ev.add(KIND, "x", id="arrived second")
    ev.add(KIND, "x", id="delayed", delay=5)
    ev.add(KIND, "x", id="urgent", priority=10)
    ev.add(KIND, "x", id="lazy", priority=-10)
    ev.add(KIND, "x", id="urgent and delayed", priority=10, delay=3)
    world.clock.move(10)
    assert claimed_order(ev) == [
        "urgent", "urgent and delayed", "arrived first", "arrived second", "delayed", "lazy",
    ]  # fmt: skip


def test_one_large_claim_has_the_same_order_as_many_small_ones(world: World) -> None:
    for n in range(30):
        world.ev.add(KIND, "x", id=str(n), priority=n % 3, delay=float(n % 2))
    world.clock.move(5)
    jobs = world.ev.queue.claim(100)
    keys = [(-j.priority, j.scheduled_for, j.job_id) for j in jobs]
    assert len(jobs) == 30
    assert keys == sorted(keys)


def test_a_job_replaced_by_a_newer_version_keeps_its_place(world: World) -> None:
    for id in ("1", "2", "3"):
        world.ev.add(KIND, "x", id=id)
        world.clock.move(1)
    world.ev.add(KIND, "y", id="1")
    world.ev.add(KIND, "y", id="2", delay=100)
    assert claimed_order(world.ev) == ["1", "2", "3"]


def test_a_claim_takes_at_most_its_limit_and_no_job_twice(world: World) -> None:
    add_all(world.ev, KIND, *"abcde")
    first, second, third = (world.ev.queue.claim(2) for _ in range(3))
    assert [len(first), len(second), len(third)] == [2, 2, 1]
    assert len({j.job_id for j in first + second + third}) == 5
    assert world.ev.queue.claim(2) == []


def test_a_limit_below_one_is_refused(world: World) -> None:
    for limit in (0, -1):
        with pytest.raises(InvalidArgument, match="limit"):
            world.ev.queue.claim(limit)


def test_a_claimed_job_carries_its_lease(world: World) -> None:
    ticket = world.ev.add(KIND, "x", id="1", priority=2)
    world.clock.move(1)
    job = claim_one(world.ev)
    assert (job.job_id, job.seq, job.claimed_seq) == (ticket.job_id, ticket.seq, ticket.seq)
    assert (job.status, job.attempts) == (Status.PROCESSING, 1)
    assert job.started_at is not None
    assert job.started_at.timestamp() == START + 1
    assert job.lease_expires_at is not None
    assert job.lease_expires_at.timestamp() == START + 61
    assert job == world.ev.queue.get(job.job_id)


def test_a_job_scheduled_for_later_is_not_claimed_before_its_time(world: World) -> None:
    world.ev.add(KIND, "x", id="1", delay=30)
    world.clock.move(29.5)
    assert world.ev.queue.claim(1) == []
    world.clock.move(0.5)
    assert claim_one(world.ev).record_id == "1"


def test_claims_serve_all_tenants(world: World) -> None:
    world.ev.add(KIND, "x", id="1")
    world.tenant("other").add(KIND, "x", id="2")
    assert {j.tenant for j in world.ev.queue.claim(10)} == {"default", "other"}


def test_tokens_are_never_used_twice(world: World) -> None:
    world.ev.add(KIND, "x", id="1")
    seen = []
    for _ in range(50):
        job = claim_one(world.ev)
        seen.append(job.token)
        world.ev.queue.release(job)
    assert None not in seen
    assert len(set(seen)) == 50


def test_only_jobs_of_the_wanted_versions_are_claimed(world: World) -> None:
    world.ev.add("a", "x", id="1")
    world.ev.add("b", "x", id="2")
    versions = {c.kind: c.version for c in world.ev.store.versions.collections()}
    assert [j.kind for j in world.ev.queue.claim(9, versions=[versions["b"]])] == ["b"]
    assert world.ev.queue.claim(9, versions=[]) == []
    assert [j.kind for j in world.ev.queue.claim(9, versions=list(versions.values()))] == ["a"]


def test_nothing_is_claimed_while_paused_and_what_is_claimed_can_be_finished(world: World) -> None:
    add_all(world.ev, KIND, "a", "b")
    held = claim_one(world.ev)
    world.ev.queue.pause()
    assert world.ev.queue.stats().paused
    assert world.ev.queue.claim(5) == []
    world.ev.queue.finish(held)
    world.ev.queue.resume()
    assert not world.ev.queue.stats().paused
    assert len(world.ev.queue.claim(5)) == 1


def test_a_paused_tenants_jobs_wait_and_all_others_go_on(world: World) -> None:
    mine, other = world.ev, world.tenant("other")
    for id in range(4):
        mine.add(KIND, "x", id=id)
        other.add(KIND, "x", id=id)
    mine.queue.pause(own=True)
    assert mine.queue.stats().paused
    assert not other.queue.stats().paused
    assert {job.tenant for job in other.queue.claim(3)} == {"other"}
    assert [job.tenant for job in mine.queue.claim(5)] == ["other"]
    assert other.queue.claim(5) == []
    mine.queue.resume(own=True)
    assert not mine.queue.stats().paused
    assert {job.tenant for job in mine.queue.claim(9)} == {"default"}


def test_what_a_paused_tenant_adds_waits_too_and_others_due_later_are_found(world: World) -> None:
    mine, other = world.ev, world.tenant("other")
    mine.queue.pause(own=True)
    mine.queue.enqueue_many(KIND, range(20), priority=3)
    other.queue.enqueue(KIND, "later", delay=90)
    assert mine.queue.claim(5) == []
    world.clock.move(91)
    assert [job.record_id for job in mine.queue.claim(5)] == ["later"]
    assert mine.queue.claim(5) == []
    mine.queue.resume(own=True)
    assert len(mine.queue.claim(99)) == 20


def test_a_tenants_pause_and_that_of_all_stand_side_by_side(world: World) -> None:
    mine, other = world.ev, world.tenant("other")
    add_all(mine, KIND, "a")
    add_all(other, KIND, "b")
    other.queue.pause(own=True)
    other.queue.pause(own=True)
    mine.queue.pause()
    assert mine.queue.stats().paused
    assert mine.queue.stats().paused_tenants == []
    assert other.queue.stats().paused_tenants == ["other"]
    assert mine.store.jobs.stats(None).paused_tenants == ["other"]
    mine.queue.resume(own=True)  # it never paused by itself
    assert mine.queue.claim(5) == []
    mine.queue.resume()
    assert [job.tenant for job in mine.queue.claim(5)] == ["default"]
    assert mine.store.jobs.paused("other")
    assert not mine.store.jobs.paused("default")
    assert not mine.store.jobs.paused()


def test_a_long_wait_of_a_paused_tenant_is_no_lag(world: World) -> None:
    add_all(world.ev, KIND, "a")
    world.clock.move(60)
    added = world.clock.now
    add_all(world.tenant("other"), KIND, "b")
    world.ev.queue.pause(own=True)
    assert world.ev.store.jobs.waiting_since(-1) == pytest.approx(added)
    world.ev.queue.resume(own=True)
    assert world.ev.store.jobs.waiting_since(-1) == pytest.approx(added - 60)


@pytest.mark.parametrize("slow", [0.0, 1.0])
def test_claims_stay_right_beside_many_jobs_of_a_paused_tenant(
    world: World, slow: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a store takes a look past them to be, and so whether it looks at them anew."""
    monkeypatch.setattr(fronts, "SLOW", slow)
    monkeypatch.setattr(fronts, "_SHARE", 1e9)
    mine, other = world.ev, world.tenant("other")
    mine.queue.enqueue_many(KIND, range(300))
    mine.queue.pause(own=True)
    world.clock.move(3600)
    for n in range(3):
        other.queue.enqueue_many(KIND, (f"{n}-{m}" for m in range(5)))
        assert len(mine.queue.claim(3)) == 3
        (first, *rest) = mine.queue.claim(9)
        assert len(rest) == 1
        assert mine.queue.claim(9) == []
        mine.queue.release(first)
        assert [job.record_id for job in mine.queue.claim(9)] == [first.record_id]
        world.clock.move(200)
    mine.queue.resume(own=True)
    assert len(mine.queue.claim(999)) == 300


def test_a_pause_and_its_end_are_heeded_at_once_by_all_who_have_the_store_open(
    shared_world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "SLOW", 0.0)
    monkeypatch.setattr(fronts, "_SHARE", 1e9)
    mine, theirs = shared_world.ev, shared_world.open()
    mine.queue.enqueue_many(KIND, range(20))
    shared_world.clock.move(3600)
    assert len(theirs.queue.claim(5)) == 5
    mine.queue.pause(own=True)
    assert theirs.queue.claim(5) == []
    shared_world.tenant("other").queue.enqueue(KIND, "1")
    assert [job.tenant for job in theirs.queue.claim(5)] == ["other"]
    assert theirs.queue.claim(5) == []
    mine.queue.resume(own=True)
    assert len(theirs.queue.claim(99)) == 15


def test_many_threads_at_once_claim_each_job_exactly_once(world: World) -> None:
    add_all(world.ev, KIND, *("x" * (n + 1) for n in range(200)))
    start = threading.Barrier(4)
    claimed: list[Job] = []

    def claim() -> None:
        start.wait()
        while jobs := world.ev.queue.claim(7):
            claimed.extend(jobs)

    threads = [threading.Thread(target=claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(claimed) == 200
    assert len({j.job_id for j in claimed}) == 200


def test_two_openings_of_one_store_claim_each_job_exactly_once(shared_world: World) -> None:
    other = shared_world.open()
    add_all(shared_world.ev, KIND, *"abcdef")
    mine, theirs = shared_world.ev.queue.claim(3), other.queue.claim(9)
    assert len(mine) == len(theirs) == 3
    assert not {j.job_id for j in mine} & {j.job_id for j in theirs}


def test_next_due_is_the_soonest_schedule_or_lease_end(world: World) -> None:
    store = world.ev.store
    assert store.leases.next_due() is None
    world.ev.add(KIND, "x", id="late", delay=500)
    world.ev.add(KIND, "x", id="later", delay=900, priority=3)
    assert store.leases.next_due() == START + 500
    world.ev.add(KIND, "x", id="now")
    assert store.leases.next_due() == START
    job = claim_one(world.ev)
    assert store.leases.next_due() == START + 60
    world.ev.queue.finish(job)
    assert store.leases.next_due() == START + 500


def test_next_due_counts_only_the_wanted_versions(world: World) -> None:
    world.ev.add("a", "x", id="1", delay=10)
    world.ev.add("b", "x", id="2", delay=20)
    versions = {c.kind: c.version for c in world.ev.store.versions.collections()}
    assert world.ev.store.leases.next_due([versions["b"]]) == START + 20
    assert world.ev.store.leases.next_due([]) is None


def test_what_crashed_its_worker_is_claimed_with_fewer_others_and_at_last_alone(
    world: World,
) -> None:
    add_all(world.ev, KIND, *("x" * (n + 1) for n in range(64)))
    sizes = []
    for _ in range(3):
        jobs = world.ev.queue.claim(64)
        sizes.append(len(jobs))
        world.clock.move(61)
        assert world.ev.queue.recover_stuck() == len(jobs)
    assert sizes[0] == 64
    assert sizes == sorted(sizes, reverse=True)
    while len(world.ev.queue.claim(64)) > 1:
        world.clock.move(61)
        world.ev.queue.recover_stuck()
    assert world.ev.queue.stats().processing == 1


def test_a_job_that_crashed_is_not_claimed_together_with_ones_that_did_not(world: World) -> None:
    world.ev.add(KIND, "x", id="bad")
    claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    add_all(world.ev, KIND, *"abc")
    claims = [{j.record_id for j in world.ev.queue.claim(64)} for _ in range(2)]
    assert {"bad"} in claims
    assert {"0", "1", "2"} in claims


def test_a_priority_beyond_all_others_is_still_claimed(world: World) -> None:
    world.ev.add(KIND, "x", id="1", priority=1000)
    world.ev.add(KIND, "x", id="2", priority=-1000)
    assert claimed_order(world.ev) == ["1", "2"]


def test_an_unknown_kind_is_kept_and_worked_by_whoever_knows_its_text(world: World) -> None:
    world.ev.add("never registered", "alpha", id="1")
    assert work(world.ev).succeeded == 1
    assert job_of(world.ev, "1", "never registered").status is Status.DONE
