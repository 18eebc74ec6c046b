"""Schedules by chance, for scopes that are too large to try everything.

Half of the runs are plain random walks. The others give each actor a priority and let the highest
go on, with a few changes of priority on the way (PCT, Burckhardt and others): that finds what
needs one actor to stand still for long while others pass it.
"""

import random
from collections.abc import Callable

from explorer.scopes import OF_ALL, WRITERS, Scope
from explorer.steps import AWAY, INDEX, LOST, PAUSE, PROVIDER, Choice, Step
from explorer.world import Process, World

Decide = Callable[[World, list[Process]], Choice]
_PLACES: tuple[tuple[Callable[[Step], bool], int], ...] = (
    (lambda step: True, 1),
    (lambda step: step.writes, 4),
    (lambda step: step.writes and step.resource == INDEX, 25),
    (lambda step: step.resource == PROVIDER, 25),
)
"""the steps among which those that meet a fault are counted, and about how many there are of them"""


def walk(scope: Scope, rng: random.Random, length: int) -> Decide:
    """A way through a scope by chance; `length`: about how many steps it has. A fault comes at a
    step by its number among all, or among those that write, that write into the index, where most
    is at stake, or that call the provider. Who was about to go on at a pause is often passed by the
    others afterwards, and whoever makes changes often waits for it, or for a power cut, and a few
    writes more."""
    counts, share = rng.choices(_PLACES, (1, 2, 3 * (scope.index == "model"), _calls(scope)))[0]
    most = max(1, length // share)
    # without any it is tried less often: small scopes show most of that
    count = max(rng.randint(0, scope.most_faults), rng.randint(0, scope.most_faults))
    faults = {rng.randrange(most) for _ in range(count)}
    pick = any_order(rng, length)
    passed, until, place = "", 0, -1
    waits = faults and scope.of_all and rng.random() < 0.7
    late, left = {name for name in scope.actors if waits and name in WRITERS}, 99

    def decide(world: World, waiting: list[Process]) -> Choice:
        nonlocal passed, until, place, left
        number = len(world.happened)
        held = late | ({passed} if number < until else set())
        others = [p for p in waiting if p.name not in held]
        if left == 0 and late:  # now is the time
            others = [p for p in waiting if p.name in late]
            late.clear()
        p = pick(number, others or waiting)
        assert p.pending is not None
        place += counts(p.pending)
        left -= p.pending.writes
        if place in faults and counts(p.pending):
            faults.discard(place)
            allowed = [Choice(p.name, fault) for fault in scope.allowed(p)]
            allowed += scope.of_all * (1 + len(allowed) // 4)
            if not allowed:
                return Choice(p.name)
            choice = rng.choice(allowed)
            if choice.action == PAUSE:
                passed, until = p.name, number + rng.choice((0, 40, 60, 80))
            if choice.action in OF_ALL:
                left = rng.randint(0, 4)
            return choice
        return Choice(p.name)

    return decide


def _calls(scope: Scope) -> int:
    """How often faults come at calls to the provider: where nothing but outages can happen, most
    of them do."""
    return 5 if set(scope.faults) <= {AWAY, LOST} else int(AWAY in scope.faults)


_Pick = Callable[[int, list[Process]], Process]


def any_order(rng: random.Random, length: int) -> _Pick:
    """Who goes on, without faults."""
    return _by_chance(rng) if rng.random() < 0.5 else _by_priority(rng, length)


def _by_chance(rng: random.Random) -> _Pick:
    """Go on with the same one for a while, then with another. Often others come in only before and
    after a write: between two reads they seldom make a difference."""
    patience = rng.choice((0.0, 0.5, 0.8, 0.95))
    anywhere = rng.random() < 0.3
    last, wrote = "", True

    def pick(_: int, waiting: list[Process]) -> Process:
        nonlocal last, wrote
        same = next((p for p in waiting if p.name == last), None)
        chosen = same
        if same is None or ((anywhere or wrote or _writes(same)) and rng.random() >= patience):
            chosen = rng.choice(waiting)
        assert chosen is not None
        last, wrote = chosen.name, _writes(chosen)
        return chosen

    return pick


def _writes(p: Process) -> bool:
    return p.pending is not None and p.pending.writes


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
