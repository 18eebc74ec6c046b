"""The small scopes, of which every schedule is tried."""

import random
from collections.abc import Iterator
from itertools import product
from typing import Any

from explorer.actors import Op
from explorer.scopes import ANY, Scope
from explorer.steps import AWAY, LOST, POWER

CHANGES: list[Op] = [
    ("add", "1", "A"), ("add", "1", "B"), ("delete", "1"), ("boxed", "1", "A"),
    ("boxed", "1", "B"), ("enqueue", "1"),
]  # fmt: skip
ROWS: list[Op] = [("row", "1", "A"), ("row", "1", "B"), ("row", "1", None)]
INDEXES = ("model", "own")


def small_scopes(most: int = 3, rng: random.Random | None = None) -> list[Scope]:
    """Two workers, one record, up to so many changes, one fault. The texts may return to what they
    were, a record may go and come again, and one that is boxed is opened. In the order in which
    they are tried: those with a single attempt, with a power cut and two changes without a fault
    first, which take least time; then one change with a fault, and so on."""
    ordered: list[Scope] = [*_last_attempts(), *_cut_scopes()]
    for count, faults in ((2, 0), (1, 1), (3, 0), (2, 1), (3, 1)):
        group = list(_scopes(count, faults)) if count <= most else []
        if rng is not None:
            rng.shuffle(group)
            group.sort(key=_safety)
        ordered += group
    return ordered


def _last_attempts() -> Iterator[Scope]:
    """One worker and two changes that have a single attempt: what is away spends none."""
    for index, first in product(INDEXES, (("add", "1", "B"), ("delete", "1"))):
        yield Scope(
            index,
            {"worker1": ("worker", 2)},
            (("add", "1", "A"),),
            (AWAY, LOST),
            options={"max_attempts": 1},
            waiting=(first, ("add", "2", "A")),
        )


def _cut_scopes() -> Iterator[Scope]:
    """One worker, a change that waits, a power cut anywhere, and another change after it."""
    here: list[Op] = [("add", "1", "B"), ("delete", "1")]
    for waits, then in product(here, [("add", "1", "A"), *here]):
        yield Scope(
            "model",
            {"worker1": ("worker", 2), "application": ("application", (then,))},
            (("add", "0", "C"), ("add", "1", "A")),
            (POWER,),
            restarts=True,
            waiting=(waits,),
        )


def _safety(scope: Scope) -> tuple[bool, bool]:
    """The first to be tried are those with more that can go wrong: an index apart from its store,
    and a record that is there before."""
    return scope.index != "model", len(scope.before) + len(scope.table or ()) < 2


def _scopes(count: int, faults: int) -> Iterator[Scope]:
    for index in INDEXES:
        for ops in product(CHANGES, repeat=count):
            for there in ((), (("add", "1", "A"),)):
                before = (("add", "0", "C"), *there)
                yield _scope(index, before, ("application", ops), None, faults)
        for ops in product(ROWS, repeat=count):
            for rows in ((("0", "C"),), (("0", "C"), ("1", "A"))):
                yield _scope(index, (), ("table", ops), rows, faults)


def _scope(
    index: str,
    before: tuple[Op, ...],
    writer: tuple[str, tuple[Op, ...]],
    rows: tuple[tuple[str, str], ...] | None,
    faults: int,
) -> Scope:
    name = "application" if rows is None else "table"
    workers = {"worker1": ("worker", 1), "worker2": ("worker", 1)}
    actors: dict[str, tuple[Any, ...]] = {**workers, name: writer}
    return Scope(index, actors, before, ANY if faults else (), faults, table=rows)
