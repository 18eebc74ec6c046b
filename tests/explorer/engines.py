"""Schedules on real engines: those of the model index replayed by sample, and others by chance.

An index engine runs the schedules that were just tried on the model of its contract, small scopes
and large ones. Steps of an engine's own (its lock, statements that wait for another transaction)
have no place in those, so that both kinds of engines run large scopes by chance too.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from explorer.damage import TWICE
from explorer.exhaustive import Exhaustive
from explorer.large import large_scope, overtaken_scope, repaired_scope
from explorer.open_scopes import open_scope
from explorer.random_search import walk
from explorer.real_index import REAL
from explorer.scopes import Result, Scope, Stage
from explorer.small import small_scopes
from explorer.stalling import Stalled, places
from explorer.steps import CRASH, GO, INDEX, PART, POWER, WORLD, Choice, Happened
from explorer.world import Process, World

STORES = ("postgres", "duckdb")
MEMORY = "memory"
ENGINES = (MEMORY, *REAL, *STORES)
_EXTRA = 12
"""steps of an engine's own that an actor may take before the one that a schedule names"""
_OF_SMALL = 60
"""schedules of a small scope from which some are taken"""
_REPLAYED, _OVERTAKEN = 0.3, 0.45
"""the shares of replays on an index engine, and of schedules in which an actor is passed between
two of the engine's own steps; the others are by chance. The first scopes are of those schedules: they find most in a short time"""
_FIRST, _REPAIRED = 6, 0.4
"""how many those are, and how many of them have points that a repair takes out"""
_LEFT_OPEN = {"postgres": 0.6, "duckdb": 0.2}
"""the share of scopes with a transaction that is left open, of which more are tried for a shorter
time"""
Make = Callable[[Scope], Stage]
Tried = tuple[Scope, Result, str]


def on_engine(scope: Scope, engine: str, rng: random.Random) -> Scope | None:
    """The same scope there; None where the engine has no such thing."""
    if engine in REAL:
        return replace(scope, index=engine) if scope.index == "model" else None
    if engine == "duckdb" and scope.table is not None:
        return None  # it follows no tables
    gone = {POWER} if engine == "postgres" else {POWER, CRASH}  # one process is all there is
    faults = tuple(fault for fault in scope.faults if fault not in gone)
    index = "own" if engine == "duckdb" else rng.choice(("own", "own", "model"))
    if index == "own":
        faults = tuple(fault for fault in faults if fault != PART)
    most = scope.most_faults if faults else 0
    return replace(scope, store=engine, index=index, faults=faults, most_faults=most)


def schedules(
    engine: str, seed: str, walks: int, made: Counter[str], make: Make = Stage
) -> Iterator[Tried]:
    """One schedule after the other, with how it ended and where it comes from; `made`: how many
    scopes were made for each engine, which this counts on."""
    while True:
        made[engine] += 1
        number = made[engine]
        name = f"{engine}, seed {seed}, scope {number}"
        rng = random.Random(f"{engine}/{seed}/{number}")
        ways = _by_chance
        if engine in REAL:
            shares = (_REPLAYED, _OVERTAKEN, 1 - _REPLAYED - _OVERTAKEN)
            ways = rng.choices((_replayed, _overtaken, _by_chance), shares)[0]
            ways = _overtaken if number <= _FIRST else ways
        yield from ways(engine, rng, walks, name, make)


def _by_chance(
    engine: str, rng: random.Random, walks: int, name: str, make: Make
) -> Iterator[Tried]:
    is_open = rng.random() < _LEFT_OPEN.get(engine, 0.0)
    made = open_scope(rng, engine) if is_open else large_scope(rng)
    scope = on_engine(made, engine, rng)
    if scope is None:
        return
    stage, length = make(scope), 100
    for number in range(walks // 3 if is_open else walks):
        result = stage.run(walk(scope, rng, length))
        length = max(10, len(result.world.happened))
        yield scope, result, f"{name}, schedule {number}"


def _overtaken(
    engine: str, rng: random.Random, walks: int, name: str, make: Make
) -> Iterator[Tried]:
    """Schedules in which an actor stops inside a call, and others pass it."""
    made = overtaken_scope(rng)
    if rng.random() < _REPAIRED:
        made = repaired_scope(rng, rng.choice(("C", TWICE) if engine == "qdrant" else ("C", "D")))
    scope = on_engine(made, engine, rng)
    assert scope is not None
    stage = make(scope)
    for number, place in enumerate(places(scope, rng)[:walks]):
        yield scope, stage.run(Stalled(scope, rng, place)), f"{name}, schedule {number}"


def _replayed(
    engine: str, rng: random.Random, walks: int, name: str, make: Make
) -> Iterator[Tried]:
    """Schedules of the model index, on a real one."""
    small = rng.random() < 0.4
    scope = rng.choice(small_scopes(3)) if small else large_scope(rng)
    there = on_engine(scope, engine, rng)
    if there is None:
        return
    model, real = make(scope), make(there)
    tried = _of_all(model, rng, walks) if small else _walked(model, rng, walks)
    for number, happened in enumerate(tried):
        result = real.run(aligned(there, happened))
        yield there, result, f"{name}, schedule {number} of the model"


def _of_all(stage: Stage, rng: random.Random, count: int) -> Iterator[list[Happened]]:
    """Some of the first schedules of an exhaustive search that ran to their end."""
    some = islice(Exhaustive(stage).results(), _OF_SMALL)
    found = [r.world.happened for r in some if r.problems is not None]
    yield from rng.sample(found, min(count, len(found)))


def _walked(stage: Stage, rng: random.Random, count: int) -> Iterator[list[Happened]]:
    for _ in range(count):
        yield stage.run(walk(stage.scope, rng, 60)).world.happened


def aligned(scope: Scope, happened: Sequence[Happened]) -> Callable[[World, list[Process]], Choice]:
    """Decide as a schedule of another engine did. An actor takes the steps that this engine has
    more until it comes to the one that the schedule names; where it never does, the fault or the
    turn comes at the step that is nearest."""
    left, extra = list(reversed(happened)), 0

    def decide(world: World, waiting: list[Process]) -> Choice:
        nonlocal extra
        there = {p.name: p for p in waiting}
        while left:
            choice, step = left[-1]
            if choice.actor == WORLD:
                left.pop()
                return choice
            p = there.get(choice.actor)
            if p is None or (step.resource == INDEX and " of " in step.what):
                # it has ended or waits; or the model writes a batch record by record
                left.pop()
                continue
            assert p.pending is not None
            is_there = (p.pending.resource, p.pending.what) == (step.resource, step.what)
            if not is_there and extra < _EXTRA:
                extra += 1
                return Choice(p.name)
            left.pop()
            extra = 0
            fits = choice.action == GO or choice.action in scope.allowed(p)
            return choice if fits else Choice(p.name)
        last = next((h.choice.actor for h in reversed(world.happened)), "")
        return Choice(last if last in there else waiting[0].name)

    return decide
