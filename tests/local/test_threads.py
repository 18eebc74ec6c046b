"""Work on many threads: never more than processors, no error lost, and a clean end."""

import subprocess
import sys
import threading

import pytest

from evervec.runtime.threads import Pool, processors


def test_results_come_in_the_order_of_what_was_given() -> None:
    assert Pool(processors()).map(lambda n: n * n, list(range(100))) == [n * n for n in range(100)]
    assert Pool(processors()).map(str, []) == []


def test_several_callers_share_the_processors() -> None:
    pool, lock = Pool(processors()), threading.Lock()
    running, most = 0, 0

    def do(_: int) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        sum(range(20_000))
        with lock:
            running -= 1

    callers = [threading.Thread(target=pool.map, args=(do, range(30))) for _ in range(5)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert 1 <= most <= processors()


def test_an_error_of_any_thread_is_raised_and_ends_the_work() -> None:
    done: list[int] = []

    def do(n: int) -> None:
        if n == 3:
            raise ValueError("three")
        done.append(n)

    with pytest.raises(ValueError, match="three"):
        Pool(processors()).map(do, list(range(1000)))
    assert len(done) < 1000


def test_a_process_may_end_in_the_middle_of_a_call() -> None:
    """A daemon thread in native code would otherwise abort it."""
    program = """
import threading
from evervec.embedders import model_loader
from evervec.embedders.local import local

embedder = local()
embedder.embed(["text"])
threading.Thread(target=embedder.embed, args=(["word " * 200] * 64,), daemon=True).start()
while not model_loader._inside:
    pass
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == 0
