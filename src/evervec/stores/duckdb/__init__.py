"""The DuckDB store: records and jobs in the same file as an application's analytical tables.

`store` composes the parts of `evervec.stores.sql`. Only one process can open the file; `file` shares
its connections among threads.
"""

from evervec.stores.duckdb.store import DuckdbStore

__all__ = ["DuckdbStore"]
