"""Claims are shared among tenants: one's backlog does not hold up another's single edit."""

from collections import Counter

import pytest

from evervec import InvalidRecord
from support.world import KIND, World, claim_one


def fill(world: World, tenant: str, count: int, priority: int = 0) -> None:
    world.tenant(tenant).queue.enqueue_many(KIND, range(count), priority=priority)


def claimed(world: World, limit: int) -> Counter[str]:
    return Counter(job.tenant for job in world.ev.queue.claim(limit))


def test_a_single_edit_does_not_wait_behind_anothers_backlog(world: World) -> None:
    fill(world, "large", 3000)
    world.clock.move(60)
    fill(world, "small", 1)
    assert claimed(world, 256) == {"large": 255, "small": 1}


def test_tenants_with_much_to_do_get_equal_shares(world: World) -> None:
    for tenant in ("first", "second", "third"):
        fill(world, tenant, 400)
        world.clock.move(60)
    for _ in range(3):
        assert claimed(world, 90) == {"first": 30, "second": 30, "third": 30}


def test_what_one_tenant_does_not_need_goes_to_the_others(world: World) -> None:
    fill(world, "large", 500)
    world.clock.move(60)
    fill(world, "small", 10)
    assert claimed(world, 100) == {"large": 90, "small": 10}
    assert claimed(world, 100) == {"large": 100}


def test_many_small_tenants_are_all_reached_within_a_few_claims(world: World) -> None:
    fill(world, "m-large", 500)
    world.clock.move(60)
    for n in range(40):
        fill(world, f"{'az'[n % 2]}{n:03}", 1)
    got: Counter[str] = Counter()
    for _ in range(3):
        got += claimed(world, 24)
    assert len(got) == 41
    assert got["m-large"] == 3 * 24 - 40


def test_claims_of_one_job_go_round_the_tenants(world: World) -> None:
    for tenant in ("a", "b", "c"):
        fill(world, tenant, 3)
    order = [claim_one(world.ev).tenant for _ in range(9)]
    assert [set(order[n : n + 3]) for n in (0, 3, 6)] == [{"a", "b", "c"}] * 3


def test_a_priority_orders_the_jobs_of_its_own_tenant_alone(world: World) -> None:
    fill(world, "large", 500, priority=1000)
    fill(world, "small", 5, priority=-1000)
    assert claimed(world, 100) == {"large": 95, "small": 5}


def test_within_a_tenant_jobs_come_by_priority_time_and_arrival(world: World) -> None:
    fill(world, "large", 100)
    fill(world, "other", 100)
    world.tenant("other").queue.enqueue_many(KIND, range(100, 110), priority=1)
    first = [job for job in world.ev.queue.claim(50) if job.tenant == "other"]
    assert [job.priority for job in first] == [1] * 10 + [0] * 15
    assert [job.job_id for job in first[10:]] == sorted(job.job_id for job in first[10:])
    rest = Counter(job.tenant for job in world.ev.queue.claim(1000))
    assert rest == {"large": 75, "other": 85}


def test_what_is_claimed_comes_in_turns_too(world: World) -> None:
    """Else what is embedded first would be all of one tenant."""
    for tenant in ("a", "b", "c"):
        fill(world, tenant, 10)
    order = [job.tenant for job in world.ev.queue.claim(12)]
    assert all(set(order[n : n + 3]) == {"a", "b", "c"} for n in (0, 3, 6, 9))


def test_a_tenant_whose_jobs_are_all_for_later_takes_no_share(world: World) -> None:
    fill(world, "large", 500)
    world.tenant("later").queue.enqueue_many(KIND, range(50), delay=600)
    assert claimed(world, 100) == {"large": 100}
    world.clock.move(601)
    assert claimed(world, 100) == {"large": 50, "later": 50}


def test_a_suspect_is_claimed_though_another_tenant_always_has_work(world: World) -> None:
    """A job whose worker died comes first in its tenant's turn, and so alone."""
    fill(world, "b", 1)
    claim_one(world.ev)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    fill(world, "a", 100)
    claims = [world.ev.queue.claim(10) for _ in range(3)]
    assert [job.tenant for job in next(jobs for jobs in claims if jobs[0].crashes)] == ["b"]


def test_a_job_that_waits_is_put_before_and_behind_its_time(world: World) -> None:
    """By a newer change of its record, by a retry, and by a job given back."""
    ev = world.ev
    ev.add(KIND, "x", id="1", delay=100)
    ev.add(KIND, "y", id="1")
    job = claim_one(ev)
    ev.add(KIND, "z", id="1", delay=50)
    ev.queue.finish(job)
    assert ev.queue.claim(1) == []
    assert ev.store.leases.next_due() == pytest.approx(world.clock.now + 50)
    world.clock.move(51)
    job = claim_one(ev)
    ev.queue.fail(job, "no")
    assert ev.queue.claim(1) == []
    world.clock.move(400)
    job = claim_one(ev)
    ev.queue.postpone(job, "later")
    assert ev.queue.claim(1) == []
    world.clock.move(400)
    ev.queue.release(claim_one(ev))
    assert claim_one(ev).record_id == "1"


def test_a_priority_outside_of_its_range_is_refused(world: World) -> None:
    for priority in (1001, -1001, 1 << 40):
        with pytest.raises(InvalidRecord, match="from -1000 to 1000"):
            world.ev.add(KIND, "x", id="1", priority=priority)
        with pytest.raises(InvalidRecord, match="from -1000 to 1000"):
            world.ev.queue.enqueue(KIND, "1", priority=priority)


def test_tenants_of_any_name_get_their_turn(world: World) -> None:
    names = ["\U0010ffff" * 64, "\x01", "é", "'; --", "z" * 256]
    for name in names:
        fill(world, name, 2)
    assert claimed(world, 5) == dict.fromkeys(names, 1)
    assert claimed(world, 9) == dict.fromkeys(names, 1)
