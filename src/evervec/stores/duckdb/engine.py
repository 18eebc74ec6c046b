"""The base of all parts of the DuckDB store: connections, queries, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from evervec.stores.duckdb.connections import Connections
from evervec.stores.named import Queries
from evervec.stores.sql.batches import Batches
from evervec.stores.sql.engine import Connection


def _dialect(shared: str) -> str:
    """Convert lists to arrays."""
    return re.sub(r"list\((\$\d+)\)", r"(select unnest(\1::bigint[]))", shared)


SQL = Queries.of_store("evervec.stores.duckdb", _dialect)


class Engine(Batches):
    """The base of the store's parts."""

    sql = SQL
    db: Connections

    def __init__(self, db: Connections, clock: Callable[[], float], max_attempts: int) -> None:
        super().__init__(clock, max_attempts)
        self.db = db

    def take_numbers(self, conn: Any, count: int) -> Iterator[int]:
        return iter(self.db.file.take(count))

    def fresh_number(self, conn: Connection) -> int:
        return self.db.file.take(1)[0]

    def raise_counter(self, conn: Connection, above: int) -> None:
        self.db.file.raise_counter(above)
