"""The SQLite store: one file, opened inside the program, or memory.

Any number of processes share the file, one writer at a time. `store` composes the parts of
`evervec.stores.sql`; the word modules rank full text by the tenant's own records.
"""

from evervec.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
