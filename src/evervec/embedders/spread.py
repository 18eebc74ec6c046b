"""Spreads work over threads without keeping the process from ending.

The pools of the standard library finish all that was given to them before a process may
end, however long that takes. These threads are daemons that live for one call.
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
    """So many things at once, whoever asks for them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._free = threading.BoundedSemaphore(self._count)

    def map(self, do: Callable[[T], R], items: Sequence[T]) -> list[R]:
        """What `do` makes of each; raises what it raised first."""
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
    """How many this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
