"""Threads that do not keep the process from exiting.

The pools of the standard library finish all submitted work before a process may exit, however long
that takes. These threads are daemons.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def start(name: str, do: Callable[..., object], *args: object) -> threading.Thread:
    """Run a function in a new thread."""
    thread = threading.Thread(target=do, args=args, name=name, daemon=True)
    thread.start()
    return thread


def submit(name: str, do: Callable[[], R]) -> Future[R]:
    """Run a function in a new thread; the future has its result."""
    future: Future[R] = Future()
    future.set_running_or_notify_cancel()  # a reader that gives up does not cancel it

    def work() -> None:
        try:
            future.set_result(do())
        except StopIteration as error:  # no future of asyncio takes it: a task would wait for ever
            future.set_exception(stopped(error))
        except BaseException as error:  # noqa: BLE001 - raised by the future's reader
            future.set_exception(error)

    start(name, work)
    return future


def stopped(error: StopIteration) -> RuntimeError:
    """What to raise instead of a StopIteration that ended a call, as generators do."""
    made = RuntimeError("a call raised StopIteration")
    made.__cause__ = error
    return made


_SLICE = 0.0001
_slicing = threading.Lock()
_inside = 0
_usual = 0.0


@contextmanager
def short_slices() -> Iterator[None]:
    """While a thread is in the block, threads take turns with Python's lock 50 times as often as
    usual. For native code that releases the lock in each of many short calls, as torch does: beside
    a thread that computes in Python it would wait 5 ms for the lock after each of them."""
    global _inside, _usual
    with _slicing:
        _inside += 1
        if _inside == 1:
            _usual = sys.getswitchinterval()
            sys.setswitchinterval(min(_SLICE, _usual))
    try:
        yield
    finally:
        with _slicing:
            _inside -= 1
            if _inside == 0:
                sys.setswitchinterval(_usual)


@contextmanager
def handling_signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Call the handler for SIGTERM and SIGINT while the block runs."""
    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


@contextmanager
def stopped_by_signals(stop: Callable[[bool], object]) -> Iterator[None]:
    """Inside the block, SIGTERM and SIGINT call `stop`, with whether the signal is the first one; only
    in the main thread. It runs in a thread: a signal handler may interrupt code that holds a lock,
    even another's."""
    signals: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        start("evervec-stop", stop, len(signals) == 1)

    with handling_signals(end):
        yield


@contextmanager
def interrupted_by_signals() -> Iterator[threading.Event]:
    """Inside the block, SIGTERM and SIGINT raise KeyboardInterrupt. They set the event too: what they
    interrupt can lose the exception, such as a destructor."""
    stopped = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopped.set()
        raise KeyboardInterrupt

    with handling_signals(stop):
        yield stopped


@contextmanager
def repeating(
    name: str, every: float, do: Callable[[], object], longest: float = math.inf
) -> Iterator[None]:
    """Call a function every so many seconds while the block runs, but no longer than `longest`. It
    must not raise. After the block it is not running."""
    over, end = threading.Event(), time.monotonic() + longest

    def work() -> None:
        while not over.wait(every) and time.monotonic() < end:
            do()

    thread = start(name, work)
    try:
        yield
    finally:
        over.set()
        thread.join()


class Pool:
    """Runs up to `count` items at once, shared by all callers. Its threads live for one call."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = threading.BoundedSemaphore(self._count)

    def map(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The result of `do` for each item. After an error, which is raised, no more items
        begin."""
        left = deque(enumerate(items))
        made: dict[int, R] = {}
        errors: list[BaseException] = []

        def work() -> None:
            while not errors:
                try:
                    place, item = left.popleft()
                except IndexError:
                    return
                try:
                    with self._free:
                        made[place] = do(item)
                except BaseException as error:  # noqa: BLE001 - raised below, by the caller's thread
                    errors.append(error)

        helpers = [start("evervec-pool", work) for _ in range(min(self._count, len(items)) - 1)]
        work()
        for helper in helpers:
            helper.join()
        if errors:
            raise errors[0]
        return [made[place] for place in range(len(items))]


def processors() -> int:
    """The number of processors that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
