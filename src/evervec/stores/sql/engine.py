"""What all parts of an SQL store hold: connections, queries, clock, counter, wake-ups."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, ClassVar, Protocol

from evervec.model.jobs import Job
from evervec.stores.named import Queries
from evervec.stores.sql.catalogue import Catalogue
from evervec.stores.sql.filters import Filter
from evervec.stores.sql.job_rows import JobRow, make_jobs

Values = tuple[Any, ...]
"""the parameters of a statement for one row"""


class Connection(Protocol):
    """An open connection of an engine's driver, or an object with the same methods."""

    def execute(self, query: str, values: Sequence[Any] = ..., /) -> Any: ...
    def executemany(self, query: str, rows: Iterable[Sequence[Any]], /) -> Any: ...


class Database(Protocol):
    """The connections of one process to one store."""

    def reading(self) -> AbstractContextManager[Any]:
        """A connection for queries; each statement sees what was committed before it began."""

    def snapshot(self) -> AbstractContextManager[Any]:
        """A connection for queries that all see the same snapshot."""

    def writing(self, *, durable: bool, conn: Any = None) -> AbstractContextManager[Any]:
        """One atomic transaction. `durable`: it is on disk when this returns. Without it a crash
        may lose the latest such transactions (never a part of one), which is acceptable for work
        that is then repeated. With `conn` it joins the caller's transaction, which the caller
        commits."""


class _Undone(Exception):
    """Rolls back the transaction in which it is raised."""


class Engine(ABC):
    """One store's connections, queries, clock and counter. The defaults are for engines that take
    a batch as arrays, one per column."""

    sql: ClassVar[Queries]
    filter: ClassVar[type[Filter]]
    """how it reads JSON"""
    db: Any
    """the engine's `Database`"""

    def __init__(self, db: Database, clock: Callable[[], float], max_attempts: int) -> None:
        self.db = db
        self.max_attempts = max_attempts
        self._clock = clock
        self._catalogue: Catalogue | None = None
        self._woken = threading.Condition()
        self._wakes = 0

    # clock and counter
    def now(self) -> float:
        return self._clock()

    def moment(self, conn: Connection) -> float:
        """The time inside a transaction, by the clock that leases use."""
        return self.now()

    def mark(self) -> int:
        """A number that differs after any change of records, versions or points."""
        with self.db.reading() as conn:
            mark: int = conn.execute(self.sql.mark).fetchone()[0]
        return mark

    @abstractmethod
    def numbers(self, conn: Any, count: int) -> Iterator[int]:
        """`count` new numbers, in ascending order, each larger than every earlier seq; they change
        `mark`. `count` may be 0."""

    def fresh_number(self, conn: Connection) -> int:
        return next(self.numbers(conn, 1))

    def touch(self, conn: Connection) -> None:
        """Change `mark`: caches of records or versions are no longer valid."""
        self.fresh_number(conn)

    @abstractmethod
    def raise_counter(self, conn: Connection, above: int) -> None:
        """Make all later numbers larger than `above`, which an index has already seen."""

    # statements and their parameters
    @staticmethod
    @abstractmethod
    def dialect(query: str) -> str:
        """A query in the neutral form of `named.py`, in the engine's dialect."""

    def each(self, conn: Connection, query: str, rows: Sequence[Values]) -> None:
        """Run a statement for each row; `rows` may be empty."""
        if rows:
            conn.execute(query, columns(rows))

    @staticmethod
    def listed(values: Iterable[Any]) -> Any:
        """A list of values as one parameter of a query."""
        return list(values)

    @staticmethod
    def keyed(keys: Sequence[tuple[str, str, str]]) -> Sequence[Any]:
        """Record keys as parameters of a query."""
        return columns(keys)

    # wake-ups
    def wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def tell(self) -> None:
        """`wake` after new jobs, which are last within their priority, or after finished jobs: no
        remembered place in the queue (`Fronts`) becomes wrong."""
        self.wake()

    def wait(self, seen: int, timeout: float) -> int:
        with self._woken:
            if self._wakes == seen and timeout > 0:
                self._woken.wait(timeout)
            return self._wakes

    def announce(self, db: Any, conn: Any) -> None:  # noqa: B027
        """Make the caller's transaction notify other processes when it commits."""

    def try_write(self) -> None:
        with suppress(_Undone), self.db.writing(durable=False) as conn:
            conn.execute(self.sql.try_write)
            raise _Undone

    # versions and jobs
    def catalogue(self, conn: Connection) -> Catalogue:
        """The current kinds and versions."""
        stamp = conn.execute(self.sql.versions_stamp).fetchone()[0]
        if self._catalogue is None or self._catalogue.stamp != stamp:
            self._catalogue = Catalogue(stamp, conn.execute(self.sql.collections).fetchall())
        return self._catalogue

    def version_names(self, conn: Connection, rows: Iterable[JobRow]) -> dict[int, str]:
        """The names of the embedding versions of some jobs, by number."""
        return self.catalogue(conn).names

    def jobs_of(self, conn: Connection, rows: Sequence[JobRow]) -> list[Job]:
        """Jobs from rows of `job_columns`."""
        return make_jobs(self.version_names(conn, rows), rows)

    @property
    def select_jobs(self) -> str:
        return f"select {self.sql.job_columns}\n"

    @property
    def select_written(self) -> str:
        """`select_jobs` for jobs whose rows are complete without their claims."""
        return self.select_jobs


class Part(ABC):  # noqa: B024 - its subclasses have abstract methods
    """A part of a store: operations on some of its tables. What an engine has to say itself is
    abstract."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.db: Any = engine.db
        self.sql: Queries = engine.sql

    def read(self, query: str, *values: Any) -> list[Any]:
        """The rows of one query."""
        with self.db.reading() as conn:
            rows: list[Any] = conn.execute(query, values).fetchall()
        return rows

    def read_one(self, query: str, *values: Any) -> Any:
        """The first row of one query; None if there is none."""
        with self.db.reading() as conn:
            return conn.execute(query, values).fetchone()

    def write(self, query: str, *values: Any, durable: bool = False) -> int:
        """Run one statement in a transaction of its own; returns how many rows it changed."""
        with self.db.writing(durable=durable) as conn:
            changed: int = conn.execute(query, values).rowcount
        return changed


def columns(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Transpose rows into one array per column, as `unnest` expects them."""
    return [list(column) for column in zip(*rows, strict=True)]
