"""The SQLite store's own index: vectors as rows of the same file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evervec.indexes.rows import Rows, RowsIndex
from evervec.model.filters import Conditions
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.engine import listed
from evervec.stores.sqlite.filters import Filter

SQL = Queries.read("evervec.indexes", "sqlite.sql")


class SqliteIndex(RowsIndex):
    """Vectors in an SQLite file, or in memory."""

    sql = SQL

    def __init__(self, db: Connections, clock: Any, cache_mb: int) -> None:
        super().__init__(db, db.name, clock, cache_mb)

    def take_numbers(self, db: Connection, wanted: int) -> range:
        last: int = db.execute(SQL.take_numbers, (wanted,)).fetchone()[0]
        return range(last - wanted + 1, last + 1)

    def write(self, db: Connection, query: str, rows: Rows) -> None:
        db.executemany(query, rows)

    def listed(self, values: Iterable[Any]) -> str:
        return listed(values)

    def filter_clause(self, conditions: Conditions, taken: int) -> tuple[str, list[Any]]:
        given = Filter(conditions, taken)
        return given.clause, given.values

    def mark(self) -> int:
        with self._db.reading() as conn:
            mark: int = conn.execute(SQL.mark).fetchone()[0]
        return mark
