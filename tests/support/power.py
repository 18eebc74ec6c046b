"""A power cut under SQLite, as SQLite defines it: what was committed without a sync may be undone.

Commits of one store are watched. Each that was asked to be durable also syncs all before it, so
the file as of the last of them is what a cut may leave behind.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from evervec import Evervec


class Disk:
    """The file of a store, and what of it is synced."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._synced = path.with_suffix(".synced")

    def watch(self, ev: Evervec) -> None:
        """Take note of what this handle syncs."""
        db: Any = ev.store.db  # type: ignore[attr-defined]
        writing = db.writing

        @contextmanager
        def watched(*, durable: bool, conn: Any = None) -> Iterator[Any]:
            with writing(durable=durable, conn=conn) as writer:
                yield writer
            if durable:
                self._sync()

        db.writing = watched
        self._sync()

    def _sync(self) -> None:
        with (
            closing(sqlite3.connect(self._path)) as now,
            closing(sqlite3.connect(self._synced)) as synced,
        ):
            now.backup(synced)

    def cut_power(self) -> None:
        """What was not synced is gone. All handles must be closed."""
        for file in self._path.parent.glob(f"{self._path.name}*"):
            file.unlink()
        self._synced.rename(self._path)
