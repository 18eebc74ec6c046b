"""While the service is busy no tenant gets more than its share."""

from evervec.server.shares import Shares
from support.world import Clock


def taken(shares: Shares, tenant: str, tries: int, cost: int = 1) -> int:
    return sum(shares.take(tenant, cost) for _ in range(tries))


def test_nobody_is_refused_while_the_service_keeps_up() -> None:
    shares = Shares(Clock(1000.0))
    shares.report_lag(0.01)
    assert not shares.busy
    assert taken(shares, "a", 5000) == 5000


def test_a_tenant_alone_may_have_everything() -> None:
    shares = Shares(Clock(1000.0))
    shares.report_lag(1.0)
    assert taken(shares, "a", 5000) == 5000


def test_beside_others_a_tenant_gets_little_more_than_they_do() -> None:
    shares = Shares(Clock(1000.0))
    shares.report_lag(1.0)
    others = [f"tenant {n}" for n in range(9)]
    for _ in range(40):
        assert all(shares.take(tenant, 1) for tenant in others)
        taken(shares, "greedy", 50)
    assert shares._now["greedy"] <= 3 * 40
    assert all(shares._now[tenant] == 40 for tenant in others)


def test_costs_count_and_are_forgotten() -> None:
    clock = Clock(1000.0)
    shares = Shares(clock)
    shares.report_lag(1.0)
    assert taken(shares, "other", 3) == 3
    assert taken(shares, "a", 10, cost=100) == 1
    assert taken(shares, "other", 3) == 3
    clock.move(2)
    shares.report_lag(1.0)
    assert shares.take("a", 100)
    clock.move(2.5)
    assert not shares.busy


def test_long_answers_count_as_part_of_a_share() -> None:
    shares = Shares(Clock(1000.0))
    shares.report_lag(1.0)
    assert shares.take("other", 1)
    assert shares.take("greedy", 1)
    shares.charge("greedy", 1000)
    assert not shares.take("greedy", 1)
    assert shares.take("other", 1)


def test_a_tenant_of_more_weight_gets_so_much_more_than_others() -> None:
    weights = {"heavy": 4}
    shares = Shares(Clock(1000.0), lambda tenant: weights.get(tenant, 1))
    shares.report_lag(1.0)
    for _ in range(100):
        assert shares.take("small", 1)
        for tenant in ("greedy", "heavy"):
            taken(shares, tenant, 100)
    now = shares._now
    assert (now["small"], now["heavy"]) == (100, 10_000)
    assert now["greedy"] < 0.26 * sum(now.values())  # one and a half times a sixth


def test_weights_change_with_the_next_second() -> None:
    clock, weights = Clock(1000.0), {"a": 1, "b": 1}
    shares = Shares(clock, weights.__getitem__)
    assert taken(shares, "a", 5) + taken(shares, "b", 5) == 10
    weights["a"] = 9
    clock.move(1)
    shares.take("a", 1)
    assert shares._weight == 10
    clock.move(5)
    shares.take("b", 1)
    assert shares._weight == 1
