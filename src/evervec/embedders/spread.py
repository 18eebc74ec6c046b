"""Spreads work over threads without keeping the process from exiting.

The pools of the standard library finish all submitted work before a process may exit, however long
that takes. These threads are daemons that live for one call.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Spread:
    """Runs up to `count` items at once, shared by all callers."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = threading.BoundedSemaphore(self._count)

    def map(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """The result of `do` for each item; raises the first error."""
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

        helpers = [
            threading.Thread(target=work, name="evervec-spread", daemon=True)
            for _ in range(min(self._count, len(items)) - 1)
        ]
        for helper in helpers:
            helper.start()
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
