"""Claims are shared among tenants: one's backlog does not hold up another's single edit."""

from collections import Counter

from support.world import KIND, World


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
    fill(world, "m-large", 5000)
    world.clock.move(60)
    for n in range(100):
        fill(world, f"{'az'[n % 2]}{n:03}", 1)
    got: Counter[str] = Counter()
    for _ in range(5):
        got += claimed(world, 64)
    assert len(got) == 101
    assert got["m-large"] == 5 * 64 - 100


def test_a_higher_priority_comes_first_whoevers_it_is(world: World) -> None:
    fill(world, "small", 5)
    fill(world, "large", 500, priority=1)
    assert claimed(world, 100) == {"large": 100}


def test_within_a_tenant_jobs_come_by_time_and_arrival(world: World) -> None:
    fill(world, "large", 300)
    fill(world, "other", 300)
    for _ in range(3):
        jobs = world.ev.queue.claim(50)
        for tenant in ("large", "other"):
            order = [job.job_id for job in jobs if job.tenant == tenant]
            assert order == sorted(order)
    rest = Counter(job.tenant for job in world.ev.queue.claim(1000))
    assert rest == {"large": 225, "other": 225}


def test_a_tenant_whose_jobs_are_all_for_later_takes_no_share(world: World) -> None:
    fill(world, "large", 500)
    world.tenant("later").queue.enqueue_many(KIND, range(50), delay=600)
    assert claimed(world, 100) == {"large": 100}
    world.clock.move(601)
    assert claimed(world, 100) == {"large": 50, "later": 50}
