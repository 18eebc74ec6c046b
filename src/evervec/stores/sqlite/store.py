"""The SQLite store, composed of its parts."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from evervec.settings import Settings
from evervec.stores.sql.store import Parts, SqlStore
from evervec.stores.sqlite.changes import Changes, JobWriter, Tenants
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.engine import Engine
from evervec.stores.sqlite.jobs import Jobs
from evervec.stores.sqlite.leases import Leases
from evervec.stores.sqlite.records import Records
from evervec.stores.sqlite.schema import SCHEMA, upgrade


class SqliteStore(SqlStore):
    """Records, jobs and ledger in one SQLite file, or in memory when `path` is None."""

    schema = SCHEMA
    parts = Parts(JobWriter, Changes, Records, Leases, Jobs, tenants=Tenants)

    def __init__(
        self,
        path: Path | None,
        settings: Settings,
        *,
        read_only: bool = False,
        immutable: bool = False,
    ) -> None:
        """A file is opened read-only if it is not writable or if `read_only` is set; `immutable`:
        see `Connections`."""
        if path is not None and path.exists() and not os.access(path, os.W_OK):
            read_only = True
        db = _open(path, settings.busy_seconds, read_only or immutable, immutable)
        engine = Engine(db, settings.clock, settings.max_attempts)
        super().__init__(db.name, engine, settings)
        self.read_only = db.read_only
        self.folder = None if path is None else path.absolute().parent
        self.reads_at_once = path is not None  # in memory, readers wait for writers

    def maintain(self) -> None:
        assert isinstance(self.records, Records)
        self.records.maintain()
        self.db.checkpoint()

    def check(self) -> str | None:
        with self.db.reading() as conn:
            (answer,) = conn.execute("pragma quick_check(1)").fetchone()
        return None if answer == "ok" else str(answer)


def _open(path: Path | None, busy_seconds: float, read_only: bool, immutable: bool) -> Connections:
    while True:
        db = Connections(path, busy_seconds, read_only=read_only, immutable=immutable)
        made = _inode(path)
        try:
            upgrade(db)
        except BaseException:
            db.close()
            raise
        # another process may have just removed the file, because it was empty (`remove_empty`)
        if path is None or (made is not None and made == _inode(path)):
            return db
        db.close()


def _inode(path: Path | None) -> int | None:
    try:
        return path.stat().st_ino if path is not None else None
    except FileNotFoundError:
        return None


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
