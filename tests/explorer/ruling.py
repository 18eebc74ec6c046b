"""Time and chance of a world: what evervec asks of them goes through here."""

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Protocol, TypeVar
from unittest import mock

from greenlet import getcurrent

from explorer.disk import being_opened

START = 1_800_000_000.0


class Clock:
    """Seconds since the epoch, as the schedule says."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


T = TypeVar("T")


class Ruled(Protocol):
    """What is known of a world here."""

    clock: Clock
    tokens: int

    def is_gone(self, life: str) -> bool: ...


def _at_once(_: str, do: Callable[[], T]) -> Future[T]:
    """A thread that does all of its work when it is started."""
    future: Future[T] = Future()
    future.set_result(do())
    return future


def _never(*_: object) -> threading.Thread:
    """A thread that never gets a turn: the heartbeat of a worker whose machine is busy."""
    return threading.Thread()


class _Event(threading.Event):
    """To wait for it is to sleep: who would set it does nothing by itself."""

    def wait(self, timeout: float | None = None) -> bool:
        if not self.is_set() and timeout:
            _rest(timeout)
        return self.is_set()


class _Lock:
    """A lock that actors hold, all of which are one thread. A process that died holds nothing."""

    def __init__(self) -> None:
        self._holder: object = None
        self._depth = 0

    def acquire(self, timeout: float = 0.0) -> bool:
        me, end = getcurrent(), _now() + timeout
        while self._is_taken(me):
            if _now() >= end:
                return False
            _rest(timeout)
        self._depth = self._depth + 1 if self._holder is me else 1
        self._holder = me
        return True

    def _is_taken(self, me: object) -> bool:
        process = getattr(self._holder, "process", None)
        gone = process is not None and process.is_dead
        return self._depth > 0 and self._holder is not me and not gone

    def release(self) -> None:
        if self._holder is getcurrent():  # else its process died, and another took it
            self._depth -= 1


class _Holder:
    """Who holds the lock to write to an index: a process of the world, not of this machine."""

    def __init__(self, name: str) -> None:
        self._name = name

    @classmethod
    def here(cls, object: str) -> "_Holder":
        process = getattr(getcurrent(), "process", None)
        return cls("nobody" if process is None else process.life)

    parse = classmethod(lambda cls, text: cls(text))

    def __str__(self) -> str:
        return self._name

    def is_dead(self) -> bool:
        return _world is not None and _world.is_gone(self._name)


_world: Ruled | None = None
_monotonic = time.monotonic
_sleep = time.sleep
_time_ns = time.time_ns
_token = secrets.token_urlsafe
_bits = secrets.randbits


@contextmanager
def ruling(world: Ruled) -> Iterator[None]:
    """Inside, time, tokens and the provider's probe are this world's."""
    global _world
    before, _world = _world, world
    try:
        yield
    finally:
        _world = before


@contextmanager
def ruled() -> Iterator[None]:
    """Inside, worlds can be run: what evervec asks of time and chance goes through them."""
    with (
        mock.patch.multiple(time, monotonic=_now, sleep=_asleep, time_ns=_nanoseconds),
        mock.patch.multiple(
            secrets, token_urlsafe=_new_token, token_hex=_new_token, randbits=_number
        ),
        mock.patch("evervec.embedding.provider.submit", _at_once),
        mock.patch("evervec.worker.threads.start", _never),
        mock.patch("evervec.stores.sqlite.store._open", being_opened),
        mock.patch(
            "evervec.indexes.writer_lock.threading", SimpleNamespace(Event=_Event, RLock=_Lock)
        ),
        mock.patch("evervec.indexes.writer_lock.repeating", return_value=nullcontext()),
        mock.patch("evervec.indexes.writer_lock.Holder", _Holder),
    ):
        yield


def _now() -> float:
    return _monotonic() if _world is None else _world.clock.now - START + 1e6


def _nanoseconds() -> int:
    """When a stage began or ended. The process may store that in a later step, so the moment is
    part of what it was told."""
    if _world is None:
        return _time_ns()
    moment = round(_world.clock.now * 1e9)
    process = getattr(getcurrent(), "process", None)
    if process is not None:
        process.seen = hash((process.seen, moment))
    return moment


def _asleep(seconds: float) -> None:
    process = getattr(getcurrent(), "process", None)
    if process is not None:
        process.sleep(seconds)
    elif _world is not None:
        _world.clock.move(seconds)
    else:
        _sleep(seconds)


def _rest(seconds: float) -> None:
    """Sleep until something is as it should be; somebody else takes a step before it is looked at
    again, or whoever waits would be the only one to go on."""
    process = getattr(getcurrent(), "process", None)
    if process is not None:
        process.rest()
    _asleep(seconds)


def _number(bits: int = 32) -> int:
    process = getattr(getcurrent(), "process", None)
    if process is not None:
        process.tokens += 1
        return hash((process.name, process.tokens)) & 0xFFFFFFFF
    if _world is None:
        return _bits(bits)
    _world.tokens += 1
    return _world.tokens


def _new_token(size: int = 16) -> str:
    return f"token-{_number()}" if _world is not None else _token(size)
