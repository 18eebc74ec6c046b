"""Token buckets: one for each key, full at first, forgotten when idle."""

import threading

import pytest

from evervec import SettingsError
from evervec.server.rate_limits import MemoryLimiter, RedisLimiter
from support.world import Clock


def taken(limiter: MemoryLimiter, key: str, tries: int) -> int:
    return sum(bool(limiter.allow(key)) for _ in range(tries))


def test_a_new_key_starts_full_and_gains_at_its_rate() -> None:
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    assert taken(limiter, "org:acme:agent:1", 300) == 200
    clock.move(0.5)
    assert taken(limiter, "org:acme:agent:1", 300) == 50
    clock.move(1000)
    assert taken(limiter, "org:acme:agent:1", 300) == 200


def test_keys_do_not_take_from_each_other() -> None:
    limiter = MemoryLimiter(rate=1, burst=3, clock=Clock())
    assert taken(limiter, "a", 9) == 3
    assert taken(limiter, "b", 9) == 3


def test_an_answer_tells_what_is_left_and_when_to_come_again() -> None:
    clock = Clock()
    limiter = MemoryLimiter(rate=4, burst=2, clock=clock)
    assert limiter.allow("a").remaining == 1
    assert limiter.allow("a").remaining == 0
    refused = limiter.allow("a")
    assert (bool(refused), refused.retry_after) == (False, 0.25)
    clock.move(refused.retry_after)
    assert limiter.allow("a")


def test_idle_keys_are_forgotten_by_the_minute() -> None:
    clock = Clock()
    limiter = MemoryLimiter(clock=clock)
    for n in range(1000):
        limiter.allow(f"key {n}")
    clock.move(550)
    limiter.allow("key 7")
    assert len(limiter) == 1000
    clock.move(70)
    limiter.allow("another")
    assert len(limiter) == 2


def test_a_clock_that_goes_back_gives_nothing_away() -> None:
    clock = Clock()
    limiter = MemoryLimiter(rate=10, burst=5, clock=clock)
    assert taken(limiter, "a", 9) == 5
    clock.move(-100)
    assert taken(limiter, "a", 9) == 0


def test_threads_together_take_no_more_than_there_is() -> None:
    limiter = MemoryLimiter(rate=1, burst=100, clock=Clock())
    counts: list[int] = []

    def run() -> None:
        counts.append(taken(limiter, "a", 200))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 100


def test_an_address_that_is_none_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingsError, match="redis_url") as raised:
        RedisLimiter("nonsense://user:secret@host")
    assert "secret" not in str(raised.value)


def test_what_was_charged_later_delays_the_next_by_a_minute_at_most() -> None:
    clock = Clock()
    limiter = MemoryLimiter(rate=10, burst=20, clock=clock)
    assert limiter.allow("a")
    limiter.charge("a", 29)
    assert limiter.allow("a").retry_after == pytest.approx(1.1)
    assert limiter.allow("b")
    for _ in range(100):
        limiter.charge("a", 10_000)
    assert limiter.allow("a").retry_after == pytest.approx(60.1)
    clock.move(60.2)
    assert limiter.allow("a")


def test_a_debt_that_a_costly_request_made_is_not_lowered_by_a_charge() -> None:
    limiter = MemoryLimiter(rate=1, burst=1, clock=Clock())
    assert limiter.allow("a", 1000)
    before = limiter.allow("a").retry_after
    limiter.charge("a", 5)
    assert limiter.allow("a").retry_after == before
