"""Scopes with a transaction of the application that is left open, or prepared."""

import random
from typing import Any

from explorer.actors import KIND, Op
from explorer.large import TEXTS
from explorer.scopes import Scope
from explorer.steps import CRASH, LOST, PAUSE
from explorer.transactions import COMMIT, ENDS, PREPARE, ROLL_BACK

_CHANGES = ("add", "add", "add", "delete")
_TO_THE_END = 400
"""steps that the others hardly ever take"""


def open_scope(rng: random.Random, store: str = "memory") -> Scope:
    """Workers, a change of model or an application go on while a transaction is open."""
    actors: dict[str, tuple[Any, ...]] = {
        f"worker{n + 1}": ("worker", rng.randint(1, 2), 8) for n in range(rng.randint(1, 2))
    }
    if store != "postgres":
        actors["application1"] = _holder(rng, (COMMIT, ROLL_BACK), (0, 10, 20), (0, 10, 40))
    elif rng.random() < 0.5:
        ends = (PREPARE, PREPARE, *ENDS)
        actors["application1"] = _holder(rng, ends, (0, 0, 40), (0, 80, _TO_THE_END, _TO_THE_END))
    else:  # the second begins while the first one is open, and ends last
        actors["application1"] = _holder(rng, ENDS, (0,), (30, 50, 80))
        actors["application2"] = _holder(rng, ENDS, (20, 40, 60), (80, _TO_THE_END, _TO_THE_END))
    if rng.random() < 0.8:
        actors["changer"] = ("changer", _turns(rng))
    if rng.random() < 0.2:
        actors["application"] = ("application", _ops(rng))
    if rng.random() < 0.2:
        actors["searcher"] = ("searcher", tuple(("default", KIND, i) for i in "12"), 1)
    there = (("add", i, rng.choice(TEXTS)) for i in "12" if rng.random() < 0.4)
    faults = rng.choice(((), (), (PAUSE,), (PAUSE, CRASH, LOST)))
    return Scope(
        rng.choice(("own", "model")), actors, (("add", "0", "C"), *there), faults,
        rng.randint(1, 2) if faults else 0, restarts=True,
    )  # fmt: skip


def _holder(
    rng: random.Random, ends: tuple[str, ...], first: tuple[int, ...], then: tuple[int, ...]
) -> tuple[Any, ...]:
    return ("holder", _ops(rng), rng.choice(ends), rng.choice(first), rng.choice(then))


def _turns(rng: random.Random) -> tuple[str, ...]:
    """What becomes of a change of model: it is given up, or comes to its end."""
    turns = ["migrate", "step"]
    if rng.random() < 0.5:
        turns += ["cancel", "wait", "step", "step"]
    else:
        turns += ["work", "step", "step", "step"]
        if rng.random() < 0.5:
            turns += ["retire", "wait", "step", "step"]
    if rng.random() < 0.2:
        turns += ["migrate", "step", "work", "step", "step"]
    return tuple(turns)


def _ops(rng: random.Random) -> tuple[Op, ...]:
    """In the order of their ids: two transactions that each wait for the other's record are the
    application's own affair."""
    ops: list[Op] = []
    for id in rng.choice(("1", "2", "12")):
        what = rng.choice(_CHANGES)
        ops.append((what, id) if what == "delete" else (what, id, rng.choice(TEXTS)))
    return tuple(ops)
