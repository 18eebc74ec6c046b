"""Schedules in which one actor stops at a chosen step, the others pass it, and it goes on.

That is what guards are for: a worker that is suspended between its look at the index and its write,
and comes back after another one has finished the same record. Such a worker usually repairs what it
did, so it often dies a few steps later. Chance alone needs hundreds of schedules to hit all three
places, which is too many for a real engine.
"""

import random
from collections.abc import Callable
from itertools import product
from typing import NamedTuple

from explorer.random_search import Decide, any_order, walk
from explorer.scopes import WRITERS, Scope
from explorer.steps import CRASH, ENGINE, INDEX, POWER, STORE, Choice, Step
from explorer.world import Process, World

_COUNTED: tuple[tuple[Callable[[Step], bool], int], ...] = (
    (lambda step: step.writes, 6),
    (lambda step: step.resource in (INDEX, ENGINE), 10),
    (lambda step: True, 30),
)
"""the steps among which the place to stop is counted, and how many of them there may be before"""
_WEIGHTS = (3, 3, 1)
_ALL, _LIVES = 999, -2
_STALLED, _STALLED_AT_POWER = 0.2, 0.6
"""the share of such schedules; who stops at a power cut is passed by those that start after it"""


class Place(NamedTuple):
    """Where one actor stops, and for how long."""

    one: str
    counts: Callable[[Step], bool]
    left: int
    """steps that count, before the one at which it stops"""
    passed: int
    """writes to the index by the others, until it goes on"""


def places(scope: Scope, rng: random.Random) -> list[Place]:
    """All places at the writes of a scope's actors, in any order: of whoever repairs, what it
    removes; of a worker, all from its claim to its finish."""
    found = [
        Place(name, lambda step: step.writes, left, passed)
        for name in _movers(scope)
        for left, passed in (
            product(range(3), (0, 1, _ALL)) if name == "repairer" else product(range(8), (1, _ALL))
        )
        if not scope.damaged or name == "repairer"
    ]
    rng.shuffle(found)
    return found


def _movers(scope: Scope) -> list[str]:
    return [n for n in scope.actors if not n.startswith(WRITERS)] or list(scope.actors)


def _any_place(scope: Scope, rng: random.Random) -> Place:
    counts, furthest = rng.choices(_COUNTED, _WEIGHTS)[0]
    passed = rng.randrange(3) if rng.random() < 0.35 else _ALL
    return Place(rng.choice(_movers(scope)), counts, rng.randrange(furthest), passed)


class Stalled:
    """Decides the steps of one such schedule."""

    def __init__(self, scope: Scope, rng: random.Random, place: Place | None = None) -> None:
        self._scope, self._rng = scope, rng
        place = place or _any_place(scope, rng)
        self._one, self._counts, self._left, self._passed = place
        self._befalls = self._fault_of_all()
        self._writers_first = rng.random() < 0.7
        self._pick = any_order(rng, 60)
        faults = 1 + (self._befalls is not None)
        may_die = faults <= scope.most_faults
        self._lasts = rng.choice((0, 0, 0, 1, 2, 3, 4, _LIVES)) if may_die else _LIVES
        """writes to the store that it makes before it dies at the next one"""
        self._stands = False

    def _fault_of_all(self) -> Choice | None:
        possible = self._scope.of_all if self._scope.most_faults else []
        return self._rng.choice(possible) if possible and self._rng.random() < 0.85 else None

    def __call__(self, world: World, waiting: list[Process]) -> Choice:
        one = next((p for p in waiting if p.name == self._one), None)
        others = [p for p in waiting if p is not one]
        if not self._stands and one is not None and not self._is_there(one):
            return Choice(one.name)
        if not self._stands:
            self._stands = True
            if self._befalls is not None:
                return self._befalls
        if one is not None and (not others or self._passed < 0):  # they end, or wait for it
            return self._go_on(one)
        writers = [p for p in others if p.name.startswith(WRITERS)]
        first = writers if writers and self._writers_first else others
        p = self._pick(len(world.happened), first)
        assert p.pending is not None
        self._passed -= p.pending.writes and p.pending.resource in (INDEX, ENGINE)
        return self._go_on(one) if one is not None and self._passed < 0 else Choice(p.name)

    def _is_there(self, one: Process) -> bool:
        assert one.pending is not None
        if self._counts(one.pending):
            self._left -= 1
        return self._left < 0

    def _go_on(self, one: Process) -> Choice:
        """Up to its end, or to the step at which it dies."""
        assert one.pending is not None
        if one.pending.resource == STORE and CRASH in self._scope.allowed(one):
            self._lasts = max(self._lasts - 1, _LIVES)
            if self._lasts == -1:
                return Choice(one.name, CRASH)
        return Choice(one.name)


def by_chance(scope: Scope, rng: random.Random, length: int) -> Decide:
    """A schedule of any sort, where the scope has a fault that stopping somewhere can meet."""
    can_stall = len(scope.actors) > 1 and scope.most_faults and scope.of_all
    share = (_STALLED_AT_POWER if POWER in scope.faults else _STALLED) if can_stall else 0.0
    return Stalled(scope, rng) if rng.random() < share else walk(scope, rng, length)
