"""The base of all parts of the PostgreSQL store: connections, queries, clock, numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from evervec.model.jobs import Job
from evervec.stores.named import Queries
from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.postgres.listener import NOTIFY, Listening
from evervec.stores.sql import engine
from evervec.stores.sql.batches import Batches
from evervec.stores.sql.fronts import Fronts
from evervec.stores.sql.jobs import JobRow, make_jobs


def _dialect(shared: str) -> str:
    """Convert table prefixes to the schema, and lists to arrays."""
    text = shared.replace("evervec_", "evervec.")
    return re.sub(r"in list\((\$\d+)\)", r"= any (\1::bigint[])", text)


SQL = Queries.of_store("evervec.stores.postgres", _dialect)

_CLOCK_HOLDS = 30.0
"""seconds for which the measured difference between the database's clock and ours is used"""
_NAMELESS_FOR = 1.0
"""seconds until an unnamed version is read again: another process may have adopted it"""


class Engine(Batches):
    """The base of the store's parts."""

    sql = SQL
    db: Connections

    def __init__(
        self, db: Connections, clock: Callable[[], float], max_attempts: int, listen: bool
    ) -> None:
        super().__init__(clock, max_attempts)
        self.db = db
        self.fronts = Fronts()
        self.listening = Listening(db, super().wake) if listen else None
        self._names: dict[int, str] = {}
        self._named_at = 0.0
        self._ahead = 0.0
        self._measured = float("-inf")

    def now(self) -> float:
        """The database's time, computed from the last measured difference to our clock. Leases use
        the database's clock itself."""
        if time.monotonic() - self._measured > _CLOCK_HOLDS:
            with self.db.reading() as conn:
                return self.moment(conn)
        return self._clock() + self._ahead

    def moment(self, conn: engine.Connection) -> float:
        moment: float = conn.execute(SQL.now).fetchone()[0]
        self.measured(moment)
        return moment

    def measured(self, moment: float) -> None:
        """Save the difference between our clock and the time that the database just returned."""
        self._ahead = moment - self._clock()
        self._measured = time.monotonic()

    def wake(self) -> None:
        self.fronts.forget()  # a new job may now precede the first known one
        self.tell()

    def tell(self) -> None:
        super().wake()
        if self.listening is not None:
            self.listening.tell()

    def wait(self, seen: int, timeout: float) -> int:
        if timeout > 0 and self.listening is not None:
            self.listening.listen()
        return super().wait(seen, timeout)

    def announce(self, db: Session, conn: Any) -> None:
        if conn is not None and self.listening is not None:
            db.execute(NOTIFY)

    def take_numbers(self, conn: Session, count: int) -> Iterator[int]:
        return iter([row[0] for row in conn.execute(SQL.take_numbers, (count,))])

    def fresh_number(self, conn: engine.Connection) -> int:
        number: int = conn.execute(SQL.take_numbers, (1,)).fetchone()[0]
        return number

    def raise_counter(self, conn: engine.Connection, above: int) -> None:
        conn.execute(SQL.lock_counter)  # no other session takes a number until the commit
        if conn.execute(SQL.last_number).fetchone()[0] < above:
            conn.execute(f"alter sequence evervec.numbers restart with {int(above) + 1}")

    @property
    def select_written(self) -> str:
        return self.select_jobs.replace("evervec.current_jobs", "evervec.jobs")

    def jobs_of(self, conn: engine.Connection, rows: Iterable[JobRow]) -> list[Job]:
        rows = list(rows)
        return make_jobs(self.names_of(conn, rows), rows)

    def names_of(self, conn: engine.Connection, rows: Iterable[JobRow]) -> dict[int, str]:
        """The names of the jobs' embedding versions; the fifth column of a row is the version."""
        names = {self._names.get(version) for version in {row[4] for row in rows}}
        new, unnamed = None in names, "" in names
        if new or (unnamed and time.monotonic() - self._named_at > _NAMELESS_FOR):
            self._names = self.version_names(conn)
            self._named_at = time.monotonic()
        return self._names
