"""The SQLite store: one file, opened inside the program, or memory."""

from evervec.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
