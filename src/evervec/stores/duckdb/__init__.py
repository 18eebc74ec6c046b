"""The DuckDB store: records and jobs beside an application's own analytical tables."""

from evervec.stores.duckdb.store import DuckdbStore

__all__ = ["DuckdbStore"]
