"""What every part of a store over SQL stands on: connections, queries, clock, waking."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from evervec.errors import InvalidArgument
from evervec.model import Job
from evervec.stores.named import Queries
from evervec.stores.sql.jobs import JobRow, make_jobs

EVERYONE = ""
"""Stands among paused tenants for all of them; no tenant is called so."""


class Cursor(Protocol):
    """What a statement gives back."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """An open connection of an engine's driver, or what stands for it."""

    def execute(self, query: str, values: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class Database(Protocol):
    """The connections of one process to one store."""

    def reading(self) -> AbstractContextManager[Any]: ...
    def snapshot(self) -> AbstractContextManager[Any]: ...
    def writing(self, *, durable: bool, conn: Any = None) -> AbstractContextManager[Any]: ...


class VersionNames(dict[int, str]):
    """The names of embedding versions by their numbers. One that is gone goes by its number: a
    job of its can be there until the next sweep."""

    def __missing__(self, version: int) -> str:
        return str(version)


class _Undone(Exception):
    """Undoes the transaction that it is raised in."""


class Engine(ABC):
    """The base of a store's parts."""

    sql: ClassVar[Queries]
    url: str
    db: Any
    """the engine's own `Database`"""
    read_only = False
    folder: Path | None = None

    def __init__(self, clock: Callable[[], float], max_attempts: int) -> None:
        self._clock = clock
        self._max_attempts = max_attempts
        self._woken = threading.Condition()
        self._wakes = 0

    def now(self) -> float:
        return self._clock()

    def moment(self, conn: Connection) -> float:
        """The time inside a transaction, by the clock that rules leases."""
        return self.now()

    @abstractmethod
    def fresh_number(self, conn: Connection) -> int:
        """A number larger than every seq before; `mark` is another one after it."""

    @abstractmethod
    def raise_counter(self, conn: Connection, above: int) -> None:
        """Fresh numbers are larger than that one from now on: others have seen it."""

    @abstractmethod
    def each(self, conn: Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement for each of some rows, or of none."""

    @staticmethod
    @abstractmethod
    def listed(values: Iterable[Any]) -> Any:
        """Values as one parameter of a query."""

    def connection(self) -> Any:
        raise InvalidArgument(
            f"{self.url} gives no connections of its own: open one with your own driver, and give "
            "it as conn="
        )

    def wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        with self._woken:
            if self._wakes == seen and timeout > 0:
                self._woken.wait(timeout)
            return self._wakes

    def try_write(self) -> None:
        with suppress(_Undone), self.db.writing(durable=False) as conn:
            conn.execute(self.sql.try_write)
            raise _Undone

    def pauses(self, conn: Connection) -> frozenset[str]:
        """The tenants whose jobs are not claimed."""
        return frozenset(row[0] for row in conn.execute(self.sql.pauses).fetchall())

    def version_names(self, conn: Connection) -> dict[int, str]:
        return VersionNames(conn.execute(self.sql.version_names).fetchall())

    def jobs_of(self, conn: Connection, rows: Iterable[JobRow]) -> list[Job]:
        """Jobs from rows of `job_columns`."""
        return make_jobs(self.version_names(conn), rows)

    @property
    def select_jobs(self) -> str:
        return f"select {self.sql.job_columns}\n"

    @property
    def select_written(self) -> str:
        """`select_jobs` where the jobs' own rows tell all of them."""
        return self.select_jobs
