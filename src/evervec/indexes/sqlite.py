"""The SQLite store's own index: vectors as rows of the same file, or in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evervec.indexes.rows import RowsIndex
from evervec.indexes.sqlite_fields import FieldIndexes
from evervec.stores.named import Queries
from evervec.stores.sql.store import SqlStore
from evervec.stores.sqlite.engine import Engine

if TYPE_CHECKING:
    from evervec.indexes.filter_cache import Few


class SqliteIndex(RowsIndex):
    """Vectors in an SQLite file."""

    lists_changes = True
    sql = Queries.read("evervec.indexes", "points.sql", "sqlite.sql", dialect=Engine.dialect)

    def __init__(self, store: SqlStore, cache_mb: int) -> None:
        super().__init__(store, cache_mb)
        self._fields = FieldIndexes(store)

    def maintain(self, before: float) -> None:
        super().maintain(before)
        self._fields.maintain()

    def _few(self) -> Few:
        return self._fields.few
