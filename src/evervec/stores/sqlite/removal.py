"""Removing the file of a store that stayed empty."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

_USED = """
select exists (select 1 from evervec_records) or exists (select 1 from evervec_attached)
    or exists (select 1 from evervec_keys)
    or exists (select 1 from sqlite_schema
               where type = 'table' and name not like 'evervec%' and name not like 'sqlite%')
"""


def remove_empty(path: Path) -> bool:
    """Remove a store's file if it is empty and no process has it open; returns whether it was
    removed.

    Without a write-ahead log, an exclusive lock on the file is possible. A process that waits for
    the lock checks, once the schema is in place, that the file still exists; so no process goes on
    to write to a file that is removed here.
    """
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as conn:
        try:
            conn.execute("pragma journal_mode = delete").fetchone()
            conn.execute("begin exclusive")
            (mode,) = conn.execute("pragma journal_mode").fetchone()
            schema = conn.execute("select count(*) from sqlite_schema").fetchone()[0]
            if mode != "delete" or (schema and conn.execute(_USED).fetchone()[0]):
                return False
        except sqlite3.Error:  # it is in use, or not a store
            return False
        path.unlink()
        return True
