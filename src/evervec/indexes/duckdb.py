"""The DuckDB store's own index: vectors as rows of the same file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evervec.indexes.rows import Rows, RowsIndex
from evervec.model.filters import Conditions
from evervec.stores.duckdb.connections import Connections
from evervec.stores.duckdb.filters import Filter
from evervec.stores.named import Queries
from evervec.stores.sql.engine import Connection, columns


class DuckdbIndex(RowsIndex):
    """Vectors in a DuckDB file, written a batch at a time."""

    sql = Queries.read("evervec.indexes", "duckdb.sql")

    def __init__(self, db: Connections, clock: Any, cache_mb: int) -> None:
        super().__init__(db, db.url, clock, cache_mb)
        self._file = db.file
        self._mark = db.mark

    def take_numbers(self, db: Connection, wanted: int) -> range:
        return self._file.take(wanted)

    def write(self, db: Connection, query: str, rows: Rows) -> None:
        db.execute(query, columns(rows))

    def listed(self, values: Iterable[Any]) -> list[Any]:
        return list(values)

    def filter_clause(self, conditions: Conditions, taken: int) -> tuple[str, list[Any]]:
        given = Filter(conditions, taken)
        return given.clause, given.values

    def mark(self) -> int:
        return self._mark()
