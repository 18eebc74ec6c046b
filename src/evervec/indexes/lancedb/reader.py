"""Reads a table as of its head.

The latest version of a table may be a late barrier, or the write of a process that died before the
store's head was moved to it. Such a version has no effect, so readers never see it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb

from evervec.errors import IndexUnavailable
from evervec.indexes.lancedb.head import Head
from evervec.indexes.lancedb.rows import Row
from evervec.model.deadlines import check, current, exceeded
from evervec.stores.paths import make_private_folder

TRIES = 4
ALL = (1 << 32) - 1
"""a limit that no table reaches"""


class Reader:
    """One table, for any number of threads."""

    def __init__(self, folder: str, name: str, head: Head) -> None:
        self._folder = folder
        self._name = name
        self._head = head
        self._opening = threading.Lock()
        self._db: Any = None
        self._latest: Any = None
        self._seen: tuple[int, Any] = (0, None)
        """the head when the store was last read, and the table as of that version"""

    def read(self, ask: Callable[[Any], list[Row]]) -> list[Row]:
        """Rows of the table; empty if there is no table. If the version being read is cleaned up in
        the meantime, the next one is read."""
        with explained(self._folder):
            for left in reversed(range(TRIES)):
                check()
                try:
                    table = self._at_head()
                    return [] if table is None else ask(table)
                except (RuntimeError, OSError, ValueError) as error:
                    if ended := exceeded():
                        raise ended from error
                    self._latest = None
                    if not left:
                        raise
            return []

    def _at_head(self) -> Any:
        """The table at its head. While the latest version is still the one that was the head, it
        remains the head: so the store is read only after a write. (Reading the latest version takes
        0.2 ms, about what a query of a fixed version saves.)"""
        latest = self._open()
        if latest is None:
            return None
        version = latest.version
        seen, table = self._seen
        if seen != version:
            head = self._head.current() or version
            if seen != head:
                head, table = self._checked_out(head, version)
                self._seen = (head, table)
        return table

    def _checked_out(self, head: int, latest: int) -> tuple[int, Any]:
        table = self._db.open_table(self._name)
        try:
            table.checkout(head)
        except (RuntimeError, OSError, ValueError):
            head = latest  # store and index were restored from different times: do as writers do
            table.checkout(head)
        return head, table

    def _open(self) -> Any:
        with self._opening:
            if self._latest is None:
                # every read sees what others wrote
                self._db = connect(self._folder, read_consistency_interval=timedelta(0))
                self._latest = open_table(self._db, self._name)
                self._seen = (0, None)
            return self._latest


def time_left() -> timedelta | None:
    """How long a query may take; None: no limit."""
    now = current()
    return None if now is None else timedelta(seconds=max(0.001, now.left))


def open_table(db: Any, name: str) -> Any:
    """None: there is no such table."""
    try:
        return db.open_table(name)
    except (ValueError, FileNotFoundError) as error:
        if "not found" in str(error):
            return None
        raise


def connect(folder: str, **options: Any) -> Any:
    """The database in a folder; a folder created here is accessible only to its owner."""
    if "://" not in folder:
        make_private_folder(Path(folder))
    return lancedb.connect(folder, **options)


@contextmanager
def explained(folder: str) -> Iterator[None]:
    """Raise LanceDB's errors as `IndexUnavailable`."""
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:
        raise IndexUnavailable(
            f"the LanceDB index in {folder} cannot be used: {first_line(error)}"
        ) from error


def first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]
