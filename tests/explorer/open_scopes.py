"""Scopes with a transaction of the application that is left open, or prepared."""

import random
from typing import Any

from explorer.actors import KIND, Op
from explorer.large import TEXTS
from explorer.scopes import Scope
from explorer.steps import CRASH, LOST, PAUSE
from explorer.transactions import COMMIT, ENDS, ROLL_BACK

_CHANGES = ("add", "add", "add", "delete")


def open_scope(rng: random.Random, store: str = "memory") -> Scope:
    """Workers, a change of model or an application go on while a transaction is open."""
    ids = "12"
    ends = ENDS if store == "postgres" else (COMMIT, ROLL_BACK)
    actors: dict[str, tuple[Any, ...]] = {
        f"worker{n + 1}": ("worker", rng.randint(1, 2), 8) for n in range(rng.randint(1, 2))
    }
    for number in range(rng.randint(1, 2) if store == "postgres" else 1):
        actors[f"application{number + 1}"] = (
            "holder", _ops(rng, ids), rng.choice(ends), rng.randint(1, 6),
        )  # fmt: skip
    if rng.random() < 0.6:
        actors["migrator"] = ("migrator", rng.randint(3, 10), rng.random() < 0.6)
    if rng.random() < 0.4:
        actors["application"] = ("application", _ops(rng, ids))
    if rng.random() < 0.3:
        actors["searcher"] = ("searcher", tuple(("default", KIND, i) for i in ids), 1)
    before = (
        ("add", "0", "C"),
        *(("add", i, rng.choice(TEXTS)) for i in ids if rng.random() < 0.5),
    )
    faults = rng.choice(((), (PAUSE,), (PAUSE, CRASH, LOST)))
    return Scope(
        rng.choice(("own", "model")), actors, before, faults, rng.randint(1, 2) if faults else 0,
        restarts=True,
    )  # fmt: skip


def _ops(rng: random.Random, ids: str) -> tuple[Op, ...]:
    """In the order of their ids: two transactions that each wait for the other's record are the
    application's own affair."""
    ops: list[Op] = []
    for id in ids:
        if rng.random() < 0.6 or not ops:
            what = rng.choice(_CHANGES)
            ops.append((what, id) if what == "delete" else (what, id, rng.choice(TEXTS)))
    return tuple(ops)
