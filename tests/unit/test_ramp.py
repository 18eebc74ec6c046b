"""How many calls of a process may be under way after a pause, and after a refusal."""

import threading
from contextlib import ExitStack

import pytest

from evervec import RateLimited
from evervec.embedding.gate import Ramp
from support.world import Clock


def most_under_way(ramp: Ramp, tried: int = 8) -> int:
    """How many calls of so many begin before one has ended."""
    begun, end = threading.Semaphore(0), threading.Event()

    def call() -> None:
        with ramp.call():
            begun.release()
            end.wait()
            raise ConnectionError  # what fails leaves the ramp as it was

    def run() -> None:
        with pytest.raises(ConnectionError):
            call()

    calls = [threading.Thread(target=run) for _ in range(tried)]
    for thread in calls:
        thread.start()
    count = 0
    while begun.acquire(timeout=0.1):
        count += 1
    end.set()
    for thread in calls:
        thread.join()
    return count


def test_without_a_pause_nothing_holds_calls_back() -> None:
    assert most_under_way(Ramp()) == 8


def test_after_a_pause_each_answer_doubles_what_may_be_under_way() -> None:
    ramp = Ramp()
    ramp.restart()
    for most in (1, 2, 4):
        assert most_under_way(ramp) == most
        with ramp.call():
            pass


def test_an_answer_to_a_call_from_before_the_pause_changes_nothing() -> None:
    ramp = Ramp()
    with ExitStack() as under_way:
        for _ in range(5):
            under_way.enter_context(ramp.call())
        ramp.restart()
    assert most_under_way(ramp) == 1


# ---- too many at once


def begin(ramp: Ramp, count: int) -> ExitStack:
    """So many calls, under way until the stack ends."""
    with ExitStack() as calls:
        for _ in range(count):
            calls.enter_context(ramp.call())
        return calls.pop_all()


def crowd(ramp: Ramp, served: int, refused: int, seconds: float | None = None) -> None:
    """Calls that are served, and more that are refused as they come."""
    with begin(ramp, served), pytest.raises(RateLimited), begin(ramp, refused):
        raise RateLimited(seconds)


def test_no_more_are_under_way_for_a_minute_than_were_not_refused() -> None:
    clock = Clock()
    ramp = Ramp(clock)
    crowd(ramp, served=3, refused=4)
    assert most_under_way(ramp) == 3
    clock.move(59)
    assert most_under_way(ramp) == 3
    clock.move(1)
    assert most_under_way(ramp) == 8


def test_it_does_not_matter_which_calls_reach_the_provider_first() -> None:
    """Those that began first may be the ones that it refuses, when others have been answered."""
    ramp = Ramp()
    late = begin(ramp, 4)
    begin(ramp, 3).close()
    with pytest.raises(RateLimited), late:
        raise RateLimited
    assert most_under_way(ramp) == 3


def test_each_refusal_counts_once() -> None:
    ramp = Ramp()
    for served, refused in ((5, 3), (4, 1), (3, 1)):
        crowd(ramp, served, refused)
        ramp.restart()
        for _ in range(4):
            with ramp.call():
                pass
        assert most_under_way(ramp) == served


def test_after_a_pause_it_doubles_up_to_what_was_not_refused() -> None:
    ramp = Ramp()
    crowd(ramp, served=3, refused=4)
    ramp.restart()
    for most in (1, 2, 3, 3):
        assert most_under_way(ramp) == most
        with ramp.call():
            pass


def test_one_call_is_always_tried() -> None:
    ramp = Ramp()
    crowd(ramp, served=0, refused=4)
    assert most_under_way(ramp) == 1


def test_a_refusal_that_names_a_time_is_not_for_too_many_at_once() -> None:
    ramp = Ramp()
    crowd(ramp, served=3, refused=4, seconds=0.0)
    assert most_under_way(ramp) == 8
