"""The SQLite store's own index: vectors as rows of the same file, or in memory."""

from __future__ import annotations

from evervec.indexes.rows import RowsIndex
from evervec.stores.named import Queries
from evervec.stores.sqlite.engine import Engine


class SqliteIndex(RowsIndex):
    """Vectors in an SQLite file."""

    lists_changes = True
    sql = Queries.read("evervec.indexes", "points.sql", "sqlite.sql", dialect=Engine.dialect)
