"""The SQLite store: one file inside a program, or memory."""

from evervec.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
