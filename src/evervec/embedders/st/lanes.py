"""Runs batches of tokens on one or several devices, without letting a device wait.

Each copy of a model has a thread, its lane. All lanes take batches from one queue, so a faster
device does more of them. A lane begins the next batch before it waits for the previous one, so the
device always has work; a query goes before the texts that wait.

A batch that does not fit into a device's memory is halved until it does, and the lane remembers:
from then on it splits larger batches before it runs them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import Future
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from evervec.errors import ProviderUnavailable
from evervec.runtime.threads import short_slices, start

Text = Sized
"""a text as its replica takes it: tokens, or anything whose length says how many it has"""
Rows = NDArray[np.float32]

_IN_FLIGHT = 2
"""batches that a lane has begun and not collected: the device runs one, and the next one waits"""


class OutOfMemory(Exception):
    """A batch does not fit into the memory of a device."""


class Replica(Protocol):
    """One copy of a model on one device."""

    device: str

    def begin(self, texts: Sequence[Text]) -> Callable[[], Rows]:
        """Begin a batch. The function that it returns waits for the rows. Both may raise
        `OutOfMemory`."""
        ...

    def free(self) -> None:
        """Give back memory that is only cached."""
        ...


def padded(texts: Sequence[Text]) -> int:
    """The tokens of a batch, with padding."""
    return len(texts) * max(1, *map(len, texts))


class Lane:
    """One replica, and how much it takes at once."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.most: int | None = None
        """tokens of a batch; None until one did not fit"""

    def begin(self, texts: Sequence[Text]) -> Callable[[], Rows]:
        """Begin a batch that is known to fit, or of which nothing is known."""
        if len(texts) > 1 and self.most is not None and padded(texts) > self.most:
            return lambda: self._in_halves(texts)
        try:
            collect = self.replica.begin(texts)
        except OutOfMemory:
            # later, when the batches before this one no longer take memory
            return lambda: self._smaller(texts)

        def finish() -> Rows:
            try:
                return collect()
            except OutOfMemory:
                return self._smaller(texts)

        return finish

    def _smaller(self, texts: Sequence[Text]) -> Rows:
        """Run a batch that did not fit in parts that do."""
        self.replica.free()
        tokens = padded(texts)
        if len(texts) == 1:
            try:  # other batches may have taken the memory
                return self.replica.begin(texts)()
            except OutOfMemory:
                raise MemoryError(
                    f"a text of {tokens} tokens does not fit into the memory of "
                    f"{self.replica.device}"
                ) from None
        self.most = min(self.most or tokens, tokens // 2)
        return self._in_halves(texts)

    def _in_halves(self, texts: Sequence[Text]) -> Rows:
        middle = len(texts) // 2
        return np.concatenate([self.begin(half)() for half in (texts[:middle], texts[middle:])])


class _Task:
    __slots__ = ("rows", "texts")

    def __init__(self, texts: Sequence[Text]) -> None:
        self.texts = texts
        self.rows: Future[Rows] = Future()
        self.rows.set_running_or_notify_cancel()


_Begun = deque[tuple[_Task, Callable[[], Rows]]]


class Lanes:
    """The lanes of all replicas; may be used from several threads."""

    def __init__(self, replicas: Sequence[Replica]) -> None:
        self.lanes = [Lane(replica) for replica in replicas]
        self._waiting: deque[_Task] = deque()
        self._changed = threading.Condition()
        self._closed = False
        for lane in self.lanes:
            start(f"evervec-{lane.replica.device}", self._work, lane)

    @property
    def room(self) -> int:
        """Batches that one caller may have submitted: enough to keep every lane busy."""
        return 2 * (_IN_FLIGHT + 1) * len(self.lanes)

    def submit(self, texts: Sequence[Text], *, urgent: bool = False) -> Future[Rows]:
        """The rows of a batch, in time; `urgent`: before all that wait."""
        task = _Task(texts)
        with self._changed:
            if self._closed:
                raise ProviderUnavailable("the embedder is closed")
            if urgent:
                self._waiting.appendleft(task)
            else:
                self._waiting.append(task)
            self._changed.notify()
        return task.rows

    def close(self) -> None:
        """Run no more batches. Those that wait fail, those that began are finished."""
        with self._changed:
            self._closed = True
            left, self._waiting = list(self._waiting), deque()
            self._changed.notify_all()
        for task in left:
            task.rows.set_exception(ProviderUnavailable("the embedder was closed"))

    def _work(self, lane: Lane) -> None:
        begun: _Begun = deque()
        while True:
            task = self._take(block=not begun)
            if task is not None:
                with short_slices():
                    begun.append((task, _guarded(lane, task.texts)))
            elif not begun:
                return
            if task is None or len(begun) >= _IN_FLIGHT:
                _finish(*begun.popleft())
            task = None  # a lane that waits must not keep the last batch alive

    def _take(self, *, block: bool) -> _Task | None:
        """The next batch; None if there is none, or with `block` only when closed."""
        with self._changed:
            if block:
                self._changed.wait_for(lambda: self._waiting or self._closed)
            return self._waiting.popleft() if self._waiting else None


def _guarded(lane: Lane, texts: Sequence[Text]) -> Callable[[], Rows]:
    """Begin a batch; an error is raised where its rows are collected."""
    try:
        return lane.begin(texts)
    except Exception as error:  # noqa: BLE001 - raised by the reader of the rows
        failure = error

    def fail() -> Rows:
        raise failure

    return fail


def _finish(task: _Task, collect: Callable[[], Rows]) -> None:
    try:
        task.rows.set_result(collect())
    except BaseException as error:  # noqa: BLE001 - raised by the reader; the lane goes on
        task.rows.set_exception(error)
