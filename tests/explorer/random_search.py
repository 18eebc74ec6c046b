"""Schedules by chance, for scopes that are too large to try everything.

Half of the runs are plain random walks. The others give each actor a priority and let the highest
go on, with a few changes of priority on the way (PCT, Burckhardt and others): that finds what
needs one actor to stand still for long while others pass it.
"""

import random
from collections.abc import Callable

from explorer.scopes import Scope
from explorer.steps import GO, Choice
from explorer.world import Process, World

Decide = Callable[[World, list[Process]], Choice]


def walk(scope: Scope, rng: random.Random, length: int) -> Decide:
    """A way through a scope by chance; `length`: about how many steps it has."""
    faults = {rng.randrange(length) for _ in range(rng.randint(0, scope.most_faults))}
    pick = _by_chance(rng) if rng.random() < 0.5 else _by_priority(rng, length)

    def decide(world: World, waiting: list[Process]) -> Choice:
        p = pick(len(world.happened), waiting)
        if len(world.happened) in faults:
            allowed = [Choice(p.name, fault) for fault in scope.allowed(p)]
            allowed += scope.of_all * (1 + len(allowed) // 4)
            if allowed:
                return rng.choice(allowed)
            faults.add(len(world.happened) + 1)
        return Choice(p.name, GO)

    return decide


_Pick = Callable[[int, list[Process]], Process]


def _by_chance(rng: random.Random) -> _Pick:
    """Go on with the same one for a while, then with another."""
    patience = rng.choice((0.0, 0.5, 0.8, 0.95))
    last = ""

    def pick(_: int, waiting: list[Process]) -> Process:
        nonlocal last
        same = [p for p in waiting if p.name == last]
        chosen = same[0] if same and rng.random() < patience else rng.choice(waiting)
        last = chosen.name
        return chosen

    return pick


def _by_priority(rng: random.Random, length: int) -> _Pick:
    priority: dict[str, float] = {}
    changes = {rng.randrange(length) for _ in range(rng.randint(1, 4))}

    def pick(number: int, waiting: list[Process]) -> Process:
        for p in waiting:
            if p.name not in priority:
                priority[p.name] = rng.random()
        best = max(waiting, key=lambda p: priority[p.name])
        if number in changes:
            priority[best.name] = -rng.random()
            best = max(waiting, key=lambda p: priority[p.name])
        return best

    return pick
