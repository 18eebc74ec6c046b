"""The DuckDB store's own index: vectors as rows of the same file."""

from __future__ import annotations

from evervec.indexes.rows import RowsIndex
from evervec.stores.duckdb.engine import Engine
from evervec.stores.named import Queries


class DuckdbIndex(RowsIndex):
    """Vectors in a DuckDB file."""

    sql = Queries.read("evervec.indexes", "points.sql", dialect=Engine.dialect)
