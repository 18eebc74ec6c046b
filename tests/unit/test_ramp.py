"""How many calls of a process may be under way after a pause."""

import threading
from contextlib import ExitStack

import pytest

from evervec.limits.gate import Ramp


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
