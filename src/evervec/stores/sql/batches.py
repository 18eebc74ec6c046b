"""What engines share that take a whole batch as arrays, one for each column.

Their changes, finishes and leases are one statement per table, whatever the size of the batch.
An engine brings the statements, and whatever it has to do around them.
"""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ParamSpec, TypeVar

from evervec.errors import StoreError
from evervec.stores.sql.engine import Connection, Engine

_TRIES = 5

P = ParamSpec("P")
R = TypeVar("R")


class Conflict(StoreError):
    """Two transactions stood in each other's way, and this one was undone: try it again."""


class CallersConflict(StoreError):
    """The same inside a transaction of the caller, who alone can do all of it again."""


def retried(
    call: Callable[P, R], undone: type[StoreError] | tuple[type[StoreError], ...] = Conflict
) -> Callable[P, R]:
    """Do a call again when another transaction was in its way."""

    @functools.wraps(call)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(_TRIES - 1):
            try:
                return call(*args, **kwargs)
            except undone:
                continue
        return call(*args, **kwargs)

    return wrapped


retried_whole = functools.partial(retried, undone=(Conflict, CallersConflict))
"""`retried` for a transaction that other calls are a part of."""


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows as one array for each column, as `unnest` takes them."""
    return [list(column) for column in zip(*rows, strict=True)]


class Batches(Engine):
    """The base of the parts of such an engine."""

    @abstractmethod
    def take_numbers(self, conn: Any, count: int) -> Iterator[int]:
        """So many fresh numbers, each larger than the one before."""

    def numbers(self, conn: Any, count: int) -> Iterator[int]:
        return self.take_numbers(conn, count) if count else iter(())

    def tell(self) -> None:
        """`wake` for what stands behind all others, or no longer waits."""
        self.wake()

    def announce(self, db: Any, conn: Any) -> None:
        """Have the caller's own transaction tell other processes when it commits."""

    def lock_records(self, db: Connection, records: Sequence[int]) -> None:
        """Keep others from changing records until the transaction ends, where they could."""

    def each(self, conn: Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            conn.execute(query, columns(rows))

    @staticmethod
    def listed(values: Iterable[Any]) -> list[Any]:
        return list(values)
