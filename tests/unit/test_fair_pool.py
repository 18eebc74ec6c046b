"""Threads for requests are shared fairly between tenants."""

import threading
from collections.abc import Callable, Iterator

import pytest

from evervec.server.fair_pool import FairPool
from support.world import PATIENCE, Clock


class Floor:
    """Work that says when it begins, and ends when it is told to."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self._changed = threading.Condition()
        self._released: set[str] = set()

    def work(self, name: str) -> Callable[[], None]:
        def run() -> None:
            with self._changed:
                self.order.append(name)
                self._changed.notify_all()
                assert self._changed.wait_for(lambda: name in self._released, PATIENCE)

        return run

    def release(self, *names: str) -> None:
        with self._changed:
            self._released.update(names)
            self._changed.notify_all()

    def until_number(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.order) >= count, PATIENCE)

    def until(self, *names: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: set(names) <= set(self.order), PATIENCE)


@pytest.fixture
def floor() -> Iterator[Floor]:
    floor = Floor()
    yield floor
    floor.release(*(f"{tenant}{n}" for tenant in "abcde" for n in range(100)))


def test_a_tenant_alone_takes_half_of_the_threads_and_one_beside_others_an_eighth(
    floor: Floor,
) -> None:
    pool = FairPool(8, clock=lambda: 0.0)
    for n in range(20):
        pool.submit("a", floor.work(f"a{n}"))
    floor.until("a3")
    for n in range(20):
        pool.submit("b", floor.work(f"b{n}"))
    floor.until("b0")
    pool.submit("c", floor.work("c0"))
    pool.submit("d", floor.work("d0"))
    floor.until("c0", "d0")
    assert [sum(name[0] == tenant for name in floor.order) for tenant in "abcd"] == [4, 1, 1, 1]
    assert (pool.running, pool.waiting) == (7, 35)


def test_a_setting_bounds_the_threads_of_a_tenant(floor: Floor) -> None:
    pool = FairPool(8, 1)
    for n in range(5):
        pool.submit("a", floor.work(f"a{n}"))
    pool.submit("b", floor.work("b0"))
    floor.until("a0", "b0")
    assert pool.running == 2


def test_whoever_used_least_time_goes_first(floor: Floor) -> None:
    clock = Clock(0.0)
    pool = FairPool(1, clock=clock)
    pool.submit("a", floor.work("a0"))
    floor.until("a0")
    for n in range(1, 4):
        pool.submit("a", floor.work(f"a{n}"))
        pool.submit("b", floor.work(f"b{n}"))
    clock.move(10)  # which a0 took
    floor.release("a0")
    floor.until("b1")
    clock.move(1)
    floor.release("b1", "b2", "b3")
    floor.until("a1")
    assert floor.order == ["a0", "b1", "b2", "b3", "a1"]


def test_who_comes_back_is_not_owed_the_time_that_it_was_away(floor: Floor) -> None:
    clock = Clock(0.0)
    pool = FairPool(1, clock=clock)
    floor.release("a0", "b0")
    for name in ("a0", "b0"):
        pool.submit(name[0], floor.work(name))
        floor.until(name)
    pool.submit("a", floor.work("a1"))
    floor.until("a1")
    pool.submit("a", floor.work("a2"))
    clock.move(1000)
    floor.release("a1")
    floor.until("a2")
    pool.submit("a", floor.work("a3"))
    for n in range(1, 4):
        pool.submit("b", floor.work(f"b{n}"))
    clock.move(1)
    floor.release("a2")
    floor.until("b1")
    clock.move(5)
    floor.release("b1")
    floor.until("a3")
    assert floor.order[-4:] == ["a1", "a2", "b1", "a3"]


def test_what_is_withdrawn_is_never_done(floor: Floor) -> None:
    pool = FairPool(1)
    first = pool.submit("a", floor.work("a0"))
    floor.until("a0")
    second, third = (pool.submit("a", floor.work(f"a{n}")) for n in (1, 2))
    assert pool.withdraw(second)
    assert not pool.withdraw(first)
    floor.release("a0")
    floor.until("a2")
    assert not pool.withdraw(third)
    assert floor.order == ["a0", "a2"]


def test_an_error_of_the_work_costs_no_thread(floor: Floor) -> None:
    pool = FairPool(1)

    def fail() -> None:
        raise SystemExit

    for _ in range(3):
        pool.submit("a", fail)
    pool.submit("a", floor.work("a0"))
    floor.until("a0")


def test_it_makes_do_with_the_threads_that_there_are(
    floor: Floor, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = FairPool(4)
    floor.release("a0", "a1")
    pool.submit("a", floor.work("a0"))
    floor.until("a0")

    def none(_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    pool.submit("a", floor.work("a1"))
    floor.until("a1")
    with pytest.raises(RuntimeError):
        FairPool(4).submit("a", floor.work("a2"))


def test_few_calls_begin_at_once_and_one_that_takes_long_holds_nobody_back(floor: Floor) -> None:
    clock = Clock()
    pool = FairPool(8, clock=clock, at_once=2)
    for n in range(4):
        pool.submit("a", floor.work(f"a{n}"))
    floor.until("a0", "a1")
    assert (pool.running, pool.waiting) == (2, 2)
    floor.release("a0")
    floor.until("a2")
    assert (pool.running, pool.waiting) == (2, 1)
    clock.move(1)
    floor.until("a3")
    assert pool.running == 3


def test_twice_as_many_begin_at_once_while_several_tenants_are_active(floor: Floor) -> None:
    """The calls of one tenant would else take all places."""
    pool = FairPool(16, clock=lambda: 0.0, at_once=2)
    for n in range(4):
        pool.submit("a", floor.work(f"a{n}"))
    floor.until("a0", "a1")
    assert pool.running == 2
    for n in range(4):
        pool.submit("b", floor.work(f"b{n}"))
    floor.until("b0", "b1")
    assert pool.running == 4


def test_the_time_of_a_tenant_counts_less_the_more_weight_it_has(floor: Floor) -> None:
    clock = Clock(0.0)
    pool = FairPool(1, clock=clock, weight_of={"a": 1, "b": 3}.__getitem__)
    pool.submit("a", floor.work("a0"))
    floor.until("a0")
    for n in range(1, 10):
        pool.submit("a", floor.work(f"a{n}"))
        pool.submit("b", floor.work(f"b{n}"))
    for turn in range(13):
        clock.move(3)  # which each takes
        done = floor.order[-1]
        floor.release(done)
        floor.until_number(turn + 2)
    taken = [name[0] for name in floor.order[1:13]]
    assert (taken.count("a"), taken.count("b")) == (3, 9)


def test_a_tenant_of_more_weight_uses_more_threads_but_never_more_than_half(floor: Floor) -> None:
    weights = {"a": 3, "b": 100, "c": 1, "d": 1}
    pool = FairPool(16, clock=lambda: 0.0, weight_of=weights.__getitem__)
    for tenant in "cd":  # so that nobody is alone
        pool.submit(tenant, floor.work(f"{tenant}0"))
    floor.until("c0", "d0")
    for n in range(20):
        pool.submit("a", floor.work(f"a{n}"))
    floor.until("a5")
    assert pool.running == 8
    for n in range(20):
        pool.submit("b", floor.work(f"b{n}"))
    floor.until("b3")
    began = [name[0] for name in floor.order]
    assert began.count("a") == 6
    assert 4 <= began.count("b") <= 8
