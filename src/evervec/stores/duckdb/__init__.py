"""The DuckDB store: records and jobs in the same file as an application's analytical tables."""

from evervec.stores.duckdb.store import DuckdbStore

__all__ = ["DuckdbStore"]
