"""Where the first waiting job was last found, so that a claim need not begin at the front.

What stands before it is not for claims: the jobs of paused tenants and, in PostgreSQL, the
dead entries of finished jobs, which are not cleared away while a transaction anywhere is
older than they are. Once a look from the front takes long, looks between begin where the last
one found something; now and then one goes the whole way, for what came to stand before that.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

SLOW = 0.002
"""seconds that a look from the front may take before it is worth saving"""
_SHARE = 50
"""between two slow looks, the time of so many passes"""
_LONGEST = 30.0

Places = tuple[list[int], list[float], list[int]]


class Fronts:
    """For each way of asking: by priority, time and number of the first job that waits."""

    def __init__(self) -> None:
        self._found: dict[Hashable, dict[int, tuple[float, int]]] = {}
        self._whole_at: dict[Hashable, float] = {}

    def known(self, key: Hashable) -> Places:
        """Where to begin, by priority; nothing: at the front."""
        if time.monotonic() >= self._whole_at.get(key, 0.0):
            self._found.pop(key, None)
        fronts = self._found.get(key) or {}
        return list(fronts), [t for t, _ in fronts.values()], [j for _, j in fronts.values()]

    def looked(
        self, key: Hashable, seconds: float, firsts: Iterable[tuple[int, float, int]]
    ) -> None:
        """What a look found: priority, time and number of the first job of each priority."""
        whole = key not in self._found
        if whole and seconds < SLOW:
            return
        if whole:
            self._whole_at[key] = time.monotonic() + min(_SHARE * seconds, _LONGEST)
        found = self._found.setdefault(key, {})
        found.update((priority, (due, job)) for priority, due, job in firsts)

    def forget(self) -> None:
        self._found.clear()
        self._whole_at.clear()
