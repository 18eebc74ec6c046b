"""PostgreSQL's connections, queries, clock and numbers."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from evervec.stores.named import Column, Queries, expand_rows
from evervec.stores.postgres.connections import Connections, Session
from evervec.stores.postgres.filters import Filter
from evervec.stores.postgres.listener import NOTIFY, Listener
from evervec.stores.sql import engine
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.fronts import Fronts
from evervec.stores.sql.job_rows import JobRow, version_of


def _rows(columns: Sequence[Column], name: str) -> str:
    types = {"double": "double precision"}
    arrays = ", ".join(f"{c.parameter}::{types.get(c.type, c.type)}[]" for c in columns)
    return f"unnest({arrays}) as {name} ({', '.join(c.name for c in columns)})"


def _dialect(query: str) -> str:
    """Tables in the schema `evervec`, and lists as arrays."""
    text = (
        expand_rows(query, _rows)
        .replace("evervec_", "evervec.")
        .replace("octets(", "octet_length(")
    )
    text = re.sub(r"cross (join evervec\.\w+ as \w+ on)", r"\1", text)
    text = re.sub(r"in list\((\$\d+)\)", r"= any (\1::bigint[])", text)
    return re.sub(r"in texts\((\$\d+)\)", r"= any (\1::text[])", text)


SQL = Queries.of_store("evervec.stores.postgres", _dialect)

_CLOCK_HOLDS = 30.0
"""seconds for which the measured difference between the database's clock and ours is used"""
_NAMELESS_FOR = 1.0
"""seconds until an unnamed version is read again: another process may have adopted it"""


class Engine(engine.Engine):
    """The connections, clock and notifications of one store."""

    sql = SQL
    filter = Filter
    dialect = staticmethod(_dialect)
    db: Connections

    def __init__(
        self, db: Connections, clock: Callable[[], float], max_attempts: int, listen: bool
    ) -> None:
        super().__init__(db, clock, max_attempts)
        self.fronts = Fronts()
        self.listening = Listener(db, super().wake) if listen else None
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

    def moment(self, conn: Connection) -> float:
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

    def numbers(self, conn: Connection, count: int) -> Iterator[int]:
        rows = conn.execute(SQL.take_numbers, (count,)).fetchall() if count else ()
        return (number for (number,) in rows)

    def touch(self, conn: Connection) -> None:
        """Nothing to do: every transaction that writes changes `mark`."""

    def raise_counter(self, conn: Connection, above: int) -> None:
        conn.execute(SQL.lock_counter)  # no other session takes a number until the commit
        (last,) = conn.execute(SQL.last_number).fetchone()
        if last < above:
            conn.execute(f"alter sequence evervec.numbers restart with {int(above) + 1}")

    @property
    def select_written(self) -> str:
        return self.select_jobs.replace("evervec.current_jobs", "evervec.jobs")

    def version_names(self, conn: Connection, rows: Iterable[JobRow]) -> dict[int, str]:
        """Cached, because most claims see the same versions as the last one."""
        names = {self._names.get(version) for version in set(map(version_of, rows))}
        new, unnamed = None in names, "" in names
        if new or (unnamed and time.monotonic() - self._named_at > _NAMELESS_FOR):
            self._names = super().version_names(conn, rows)
            self._named_at = time.monotonic()
        return self._names
