"""Deadlines: a call ends in time, in Python and in the engine that does its work.

`with deadline(2.0):` limits every call inside. Python code calls `check` where it may take long.
For work in a driver or library, `interrupting` registers how to interrupt it; one thread of the
process does so once the time is over. Other modules use `left` as the timeout of their own calls.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import count
from typing import Protocol

from evervec.errors import Cancelled, DeadlineExceeded, InvalidArgument
from evervec.runtime.threads import start

_TICK = 0.02
"""seconds between two checks while something is registered"""
_IDLE_TICKS = 250
"""after so many checks with nothing registered, the thread sleeps until something is"""

_current: ContextVar[Deadline | None] = ContextVar("evervec_deadline", default=None)


class Deadline:
    """A point in time, or an earlier end because the caller no longer wants the answer."""

    __slots__ = ("_outer", "_why", "clock", "ends", "seconds")

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        outer: Deadline | None = None,
    ) -> None:
        """`outer`: one whose cancellation ends this one too."""
        self._outer = outer
        self.seconds = seconds
        self.ends = clock() + seconds
        self.clock = clock
        self._why: str | None = None

    @property
    def left(self) -> float:
        """Seconds until it ends, never less than 0."""
        return 0.0 if self._cancelled is not None else max(0.0, self.ends - self.clock())

    @property
    def over(self) -> bool:
        return self._cancelled is not None or self.clock() >= self.ends

    @property
    def _cancelled(self) -> str | None:
        """Why it was cancelled."""
        if self._why is None and self._outer is not None:
            return self._outer._cancelled
        return self._why

    def cancel(self, why: str) -> None:
        """End it now: work under it raises `Cancelled`."""
        self._why = self._why or why

    def branch(self) -> Deadline:
        """One that ends at the same time, and can be cancelled by itself."""
        made = Deadline(self.seconds, self.clock, self)
        made.ends = self.ends
        return made

    def extend(self, seconds: float) -> None:
        """Allow more time, for a caller that asked to wait."""
        self.seconds += seconds
        self.ends += seconds

    def restart(self) -> None:
        """Start the full time again, after a step of a long task."""
        self.ends = self.clock() + self.seconds

    def error(self) -> DeadlineExceeded:
        """The error raised by a call that the deadline ended."""
        if (why := self._cancelled) is not None:
            return Cancelled(why)
        return DeadlineExceeded(
            f"the call exceeded its deadline of {self.seconds:g} s and was aborted: request less, "
            "or allow more time"
        )

    def check(self) -> None:
        if self.over:
            raise self.error()


@contextmanager
def deadline(seconds: float, clock: Callable[[], float] | None = None) -> Iterator[Deadline]:
    """End every call inside the block after this many seconds with `DeadlineExceeded`.

    A call that writes has then written nothing. An enclosing deadline that ends earlier stays in
    force.
    """
    if not seconds >= 0:  # also refuses NaN
        raise InvalidArgument(f"a deadline is a number of seconds, at least 0, not {seconds!r}")
    outer = _current.get()
    chosen_clock = clock or (outer.clock if outer is not None else time.monotonic)
    made = Deadline(seconds, chosen_clock, outer)
    chosen = outer if outer is not None and outer.left <= made.left else made
    with bounded(chosen):
        yield chosen


class bounded:  # noqa: N801 - used as a function; a generator would take three times as long
    """Use that deadline, or none, inside the block."""

    __slots__ = ("_chosen", "_token")

    def __init__(self, chosen: Deadline | None) -> None:
        self._chosen = chosen

    def __enter__(self) -> None:
        self._token = _current.set(self._chosen)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def current() -> Deadline | None:
    return _current.get()


def check() -> None:
    """Raise if the current deadline is over; costs a fraction of a microsecond."""
    if (now := _current.get()) is not None:
        now.check()


def left(most: float = math.inf) -> float:
    """The timeout for a call to another system: `most`, or less if the deadline is near."""
    now = _current.get()
    return most if now is None else min(most, now.left)


def exceeded() -> DeadlineExceeded | None:
    """The error to raise instead of one that the end of the deadline has caused."""
    now = _current.get()
    return now.error() if now is not None and now.over else None


class Lock(Protocol):
    """A lock of `threading`."""

    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
    def release(self) -> None: ...


def acquire(lock: Lock) -> None:
    """Acquire a lock; raises `DeadlineExceeded` if the deadline ends first."""
    now = _current.get()
    if now is None:
        lock.acquire()
    elif not lock.acquire(timeout=now.left):
        raise now.error()


class holding:  # noqa: N801 - used as a function
    """Hold a lock, acquired as `acquire` does, inside the block."""

    __slots__ = ("_lock",)

    def __init__(self, lock: Lock) -> None:
        self._lock = lock

    def __enter__(self) -> None:
        acquire(self._lock)

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class _Watch:
    """The thread that interrupts work past its deadline.

    Work is interrupted repeatedly until it ends, because a statement that began just after an
    interrupt would not notice it. Interrupts are called under the lock that `remove` takes, so
    never after `remove`.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._watched: dict[int, tuple[Deadline, Callable[[], object]]] = {}
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, ends: Deadline, interrupt: Callable[[], object]) -> int:
        number = next(self._numbers)
        with self._lock:
            self._watched[number] = (ends, interrupt)
            if self._thread is None:
                self._start()
        if not self._wanted.is_set():
            self._wanted.set()
        return number

    def remove(self, number: int) -> None:
        with self._lock:
            del self._watched[number]

    def forked(self) -> None:
        """Reset in a forked process: it has no thread, and nothing is registered."""
        self.__init__()  # type: ignore[misc]

    def _start(self) -> None:
        with suppress(RuntimeError):  # no thread available: the next `add` tries again
            self._thread = start("evervec-deadline", self._run)

    def _run(self) -> None:
        idle = 0
        while True:
            if idle > _IDLE_TICKS:
                self._wanted.clear()
                if not self._watched:
                    self._wanted.wait()
            time.sleep(_TICK)
            with self._lock:
                idle = 0 if self._watched else idle + 1
                for ends, interrupt in self._watched.values():
                    if ends.over:
                        with suppress(Exception):  # it has ended, or cannot be interrupted
                            interrupt()


_watch = _Watch()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_watch.forked)


class interrupting:  # noqa: N801 - used as a function
    """Interrupts the work in the block with `interrupt`, from another thread, when the current
    deadline is over. `interrupt` is called repeatedly until the block ends, and must be fast."""

    __slots__ = ("_interrupt", "_number")

    def __init__(self, interrupt: Callable[[], object]) -> None:
        self._interrupt = interrupt
        self._number = -1

    def __enter__(self) -> None:
        now = _current.get()
        if now is not None:
            now.check()
            self._number = _watch.add(now, self._interrupt)

    def __exit__(self, *_: object) -> None:
        if self._number >= 0:
            _watch.remove(self._number)
