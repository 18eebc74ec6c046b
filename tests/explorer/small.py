"""The small scopes, of which every schedule is tried."""

from collections.abc import Iterator
from itertools import product

from explorer.actors import Op
from explorer.scopes import Scope

CHANGES: list[Op] = [
    ("add", "1", "A"), ("add", "1", "B"), ("delete", "1"), ("boxed", "1", "A"),
    ("boxed", "1", "B"), ("enqueue", "1"),
]  # fmt: skip
ROWS: list[Op] = [("row", "1", "A"), ("row", "1", "B"), ("row", "1", None)]
INDEXES = ("model", "own")


def small_scopes(most: int = 3) -> Iterator[Scope]:
    """Two workers, one record, up to so many changes, one fault: short ones first. The texts may
    return to what they were, a record may go and come again, and one that is boxed is opened."""
    for count in range(1, most + 1):
        for ops in product(CHANGES, repeat=count):
            for index in INDEXES:
                for there in ((), (("add", "1", "A"),)):
                    yield _scope(index, (("add", "0", "C"), *there), ("application", ops), None)
        for ops in product(ROWS, repeat=count):
            for index in INDEXES:
                for rows in ((), (("1", "A"),)):
                    yield _scope(index, (), ("table", ops), rows)


def _scope(
    index: str,
    before: tuple[Op, ...],
    writer: tuple[str, tuple[Op, ...]],
    rows: tuple[tuple[str, str], ...] | None,
) -> Scope:
    name = "application" if rows is None else "table"
    workers = {"worker1": ("worker", 1), "worker2": ("worker", 1)}
    return Scope(index, {**workers, name: writer}, before, table=rows)
