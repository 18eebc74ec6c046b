"""Numbers that take long to count, counted beside the requests and shown with their age.

A page must not take longer the more records there are. A count that grows with them runs in a
thread of its own, at most a twentieth of the time, and everybody who looks sees its last result.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Generic, TypeVar

from evervec.errors import EvervecError
from evervec.model.deadlines import deadline
from evervec.runtime.threads import submit

log = logging.getLogger("evervec.server")

T = TypeVar("T")

_REST = 20
"""how many times as long as a count took, until it is counted again"""
_LEAST_SECONDS = 2.0
_PATIENCE = 0.15
"""seconds for which a page waits for its first count"""
_AT_ONCE = 2
_MOST = 128
_PAST_SECONDS = 600.0
_MOST_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Measured(Generic[T]):
    """A result, and when it was counted."""

    value: T
    at: datetime
    clock: float
    """the same by a clock that never jumps, in seconds"""


@dataclass(slots=True)
class _Entry:
    past: deque[Measured[Any]] = field(default_factory=deque)
    next: float = 0.0
    task: asyncio.Task[None] | None = None
    error: Exception | None = None


class Measures:
    """The counts of one service."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        patience: float = _PATIENCE,
        seconds: float = _MOST_SECONDS,
    ) -> None:
        """`seconds`: after which a count ends, in the engine too; it is repeated later."""
        self._clock = clock
        self._patience = patience
        self._seconds = seconds
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def read(self, key: Hashable, count: Callable[[], T]) -> list[Measured[T]]:
        """The last results of a count, the latest last; empty while the first one takes long. Raises
        the error of a first count that failed."""
        entry = self._entries.setdefault(key, _Entry())
        self._entries.move_to_end(key)
        while len(self._entries) > _MOST:
            self._entries.popitem(last=False)
        if entry.task is None and self._clock() >= entry.next:
            # without the request's deadline: others wait for it too
            entry.task = asyncio.get_running_loop().create_task(
                self._count(entry, count), context=contextvars.Context()
            )
        if entry.task is not None:
            await asyncio.wait([entry.task], timeout=self._patience)
        if not entry.past and entry.error is not None:
            error, entry.error = entry.error, None
            raise error
        return list(entry.past)

    def renew(self, key: Hashable) -> None:
        """Count again when somebody next looks: something was done that changes the result."""
        if (entry := self._entries.get(key)) is not None:
            entry.next = 0.0

    def _do(self, count: Callable[[], T]) -> T:
        with deadline(self._seconds):
            return count()

    async def _count(self, entry: _Entry, count: Callable[[], T]) -> None:
        async with self._turns:
            began = self._clock()
            try:
                value = await asyncio.wrap_future(submit("evervec-count", partial(self._do, count)))
                done = Measured(value, datetime.now(UTC), self._clock())
                while entry.past and done.clock - entry.past[0].clock > _PAST_SECONDS:
                    entry.past.popleft()
                entry.past.append(done)
                entry.error = None
            except EvervecError as error:
                log.warning("a count for the dashboard failed: %s", error)
                entry.error = error
            except Exception as error:
                log.exception("a count for the dashboard failed")
                entry.error = EvervecError(f"a count failed: {type(error).__name__}")
            finally:
                taken = self._clock() - began
                entry.next = self._clock() + max(_LEAST_SECONDS, _REST * taken)
                entry.task = None
