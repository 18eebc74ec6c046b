"""Where the first waiting job of a tenant was last found, so that a claim need not begin at the
front.

What stands before it in PostgreSQL are the dead entries of finished jobs, which are not cleared
away while a transaction anywhere is older than they are. Once a look from the front takes long,
looks between begin where the last one found something; now and then one goes the whole way, for
what came to stand before that.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable

SLOW = 0.002
"""seconds that a look from the front may take before it is worth saving"""
_SHARE = 50
"""between two slow looks, the time of so many passes"""
_LONGEST = 30.0

Places = tuple[list[str], list[int], list[float], list[int]]


class Fronts:
    """For each way of asking: by tenant, rank, time and number of the first job that waits."""

    def __init__(self) -> None:
        self._found: dict[Hashable, dict[str, tuple[int, float, int]]] = {}
        self._whole_at: dict[Hashable, float] = {}

    def known(self, key: Hashable) -> Places:
        """Where to begin, by tenant; nothing: at the front."""
        if time.monotonic() >= self._whole_at.get(key, 0.0):
            self._found.pop(key, None)
        fronts = self._found.get(key) or {}
        ranks, times, jobs = map(list, zip(*fronts.values(), strict=True)) if fronts else ([],) * 3
        return list(fronts), ranks, times, jobs

    def looked(
        self, key: Hashable, seconds: float, firsts: Iterable[tuple[str, int, float, int]]
    ) -> None:
        """What a look found: tenant, rank, time and number of the first job of each tenant."""
        whole = key not in self._found
        if whole and seconds < SLOW:
            return
        if whole:
            self._whole_at[key] = time.monotonic() + min(_SHARE * seconds, _LONGEST)
        found = self._found.setdefault(key, {})
        found.update((tenant, (rank, due, job)) for tenant, rank, due, job in firsts)

    def forget(self) -> None:
        self._found.clear()
        self._whole_at.clear()
