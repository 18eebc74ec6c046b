"""The base of every part of an SQL store: connections, queries, clock, wake-ups."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from evervec.errors import InvalidArgument
from evervec.model.jobs import Job
from evervec.stores.named import Queries
from evervec.stores.sql.catalogue import Catalogue
from evervec.stores.sql.jobs import JobRow, make_jobs
from evervec.stores.sql.turns import Turns

EVERYONE = ""
"""The entry in the paused tenants that means all tenants; no tenant has this name."""


class Cursor(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """An open connection of an engine's driver, or an object with the same methods."""

    def execute(self, query: str, values: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class Database(Protocol):
    """The connections of one process to one store."""

    def reading(self) -> AbstractContextManager[Any]: ...
    def snapshot(self) -> AbstractContextManager[Any]: ...
    def writing(self, *, durable: bool, conn: Any = None) -> AbstractContextManager[Any]: ...


class _Undone(Exception):
    """Rolls back the transaction in which it is raised."""


class Engine(ABC):
    """The base of a store's parts."""

    sql: ClassVar[Queries]
    url: str
    db: Any
    """the engine's `Database`"""
    read_only = False
    folder: Path | None = None

    def __init__(self, clock: Callable[[], float], max_attempts: int) -> None:
        self._clock = clock
        self._max_attempts = max_attempts
        self.turns = Turns()
        self._catalogue: Catalogue | None = None
        self._woken = threading.Condition()
        self._wakes = 0

    def now(self) -> float:
        return self._clock()

    def moment(self, conn: Connection) -> float:
        """The time inside a transaction, by the clock that leases use."""
        return self.now()

    @abstractmethod
    def fresh_number(self, conn: Connection) -> int:
        """A number larger than every earlier seq; it changes `mark`."""

    @abstractmethod
    def raise_counter(self, conn: Connection, above: int) -> None:
        """Make all later numbers larger than `above`, which an index has already seen."""

    @abstractmethod
    def each(self, conn: Connection, query: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Run a statement for each row; `rows` may be empty."""

    @staticmethod
    @abstractmethod
    def listed(values: Iterable[Any]) -> Any:
        """A list of values as one parameter of a query."""

    def connection(self) -> Any:
        raise InvalidArgument(
            f"{self.url} does not provide connections: open one with your own driver, and pass it "
            "as conn="
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

    def counting(self, conn: Connection, records: Collection[int]) -> AbstractContextManager[None]:
        """Context for a change of those records or their ledger entries: it updates `usage` where
        no trigger does."""
        return nullcontext()

    def held_back(self, conn: Connection, now: float) -> frozenset[str]:
        """The paused tenants, and those that have used up their daily quota."""
        return frozenset(row[0] for row in conn.execute(self.sql.held_back, (now,)).fetchall())

    def weights(self, conn: Connection) -> dict[str, int]:
        """The weights of tenants with a weight other than 1."""
        return dict(conn.execute(self.sql.weights).fetchall())

    def barred(self, conn: Connection, versions: Collection[int] | None) -> list[int] | None:
        """The versions whose jobs this process does not claim; None: it claims all jobs."""
        if versions is None:
            return None
        return self.catalogue(conn).barred(versions)

    def catalogue(self, conn: Connection) -> Catalogue:
        """The current kinds and versions."""
        stamp = conn.execute(self.sql.versions_stamp).fetchone()[0]
        if self._catalogue is None or self._catalogue.stamp != stamp:
            self._catalogue = Catalogue(stamp, conn.execute(self.sql.collections).fetchall())
        return self._catalogue

    def version_names(self, conn: Connection) -> dict[int, str]:
        return self.catalogue(conn).names

    def jobs_of(self, conn: Connection, rows: Iterable[JobRow]) -> list[Job]:
        """Jobs from rows of `job_columns`."""
        return make_jobs(self.version_names(conn), rows)

    @property
    def select_jobs(self) -> str:
        return f"select {self.sql.job_columns}\n"

    @property
    def select_written(self) -> str:
        """`select_jobs` for jobs whose rows are complete without their claims."""
        return self.select_jobs
