"""The base for engines that take a whole batch as arrays, one per column.

Changes, finishes and leases are one statement per table, whatever the size of the batch. An engine
provides the statements, and any work that it must do around them.
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
    """This transaction conflicted with another and was rolled back: retry it."""


class CallersConflict(StoreError):
    """A conflict inside the caller's transaction, which only the caller can retry."""


def retried(
    call: Callable[P, R], undone: type[StoreError] | tuple[type[StoreError], ...] = Conflict
) -> Callable[P, R]:
    """Retry a call when it conflicted with another transaction, up to `_TRIES` times in all."""

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
"""`retried` for a transaction that contains other calls."""


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Transpose rows into one array per column, as `unnest` expects them."""
    return [list(column) for column in zip(*rows, strict=True)]


class Batches(Engine):
    """The base of such an engine's parts."""

    @abstractmethod
    def take_numbers(self, conn: Any, count: int) -> Iterator[int]:
        """`count` new numbers, in ascending order."""

    def numbers(self, conn: Any, count: int) -> Iterator[int]:
        return self.take_numbers(conn, count) if count else iter(())

    def tell(self) -> None:
        """`wake` after new jobs, which are last within their priority, or after finished jobs: no
        remembered place in the queue (`Fronts`) becomes wrong."""
        self.wake()

    def announce(self, db: Any, conn: Any) -> None:
        """Make the caller's transaction notify other processes when it commits."""

    def lock_records(self, db: Connection, records: Sequence[int]) -> None:
        """Lock records until the transaction ends, in engines with concurrent writers."""

    def each(self, conn: Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            conn.execute(query, columns(rows))

    @staticmethod
    def listed(values: Iterable[Any]) -> list[Any]:
        return list(values)
