"""Schedules by chance, for scopes that are too large to try everything.

Half of the runs are plain random walks. The others give each actor a priority and let the highest
go on, with a few changes of priority on the way (PCT, Burckhardt and others): that finds what
needs one actor to stand still for long while others pass it.
"""

import random
from collections.abc import Callable

from explorer.scopes import Scope
from explorer.steps import PAUSE, Choice
from explorer.world import Process, World

Decide = Callable[[World, list[Process]], Choice]


def walk(scope: Scope, rng: random.Random, length: int) -> Decide:
    """A way through a scope by chance; `length`: about how many steps it has. A fault comes at a
    step by its number among all, or among those that write, where most is at stake. Who was about
    to go on at a pause is often passed by the others afterwards."""
    among_writes = rng.random() < 0.6
    most = max(2, length // 3) if among_writes else length
    faults = {rng.randrange(most) for _ in range(rng.randint(0, scope.most_faults))}
    pick = _by_chance(rng) if rng.random() < 0.5 else _by_priority(rng, length)
    passed, until, writes = "", 0, -1

    def decide(world: World, waiting: list[Process]) -> Choice:
        nonlocal passed, until, writes
        number = len(world.happened)
        others = [p for p in waiting if p.name != passed] if number < until else []
        p = pick(number, others or waiting)
        assert p.pending is not None
        writes += p.pending.writes
        place = writes if among_writes else number
        if place in faults and (p.pending.writes or not among_writes):
            faults.discard(place)
            allowed = [Choice(p.name, fault) for fault in scope.allowed(p)]
            allowed += scope.of_all * (1 + len(allowed) // 4)
            if not allowed:
                return Choice(p.name)
            choice = rng.choice(allowed)
            if choice.action == PAUSE:
                passed, until = p.name, number + rng.choice((0, 10, 25, 50))
            return choice
        return Choice(p.name)

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
