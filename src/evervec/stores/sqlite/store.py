"""The SQLite store, composed of its parts."""

from __future__ import annotations

import os
from pathlib import Path

from evervec.settings import Settings
from evervec.stores.sql.asking import Asking
from evervec.stores.sql.audit import Audit
from evervec.stores.sql.fleet import Fleet
from evervec.stores.sql.keys import Keys
from evervec.stores.sql.sharing import Sharing
from evervec.stores.sql.tenants import default_limits
from evervec.stores.sql.versions import Versions
from evervec.stores.sqlite.care import Care
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.finding import Finding
from evervec.stores.sqlite.looking import Looking
from evervec.stores.sqlite.schema import upgrade


class SqliteStore(Care, Looking, Finding, Sharing, Versions, Fleet, Keys, Asking, Audit):
    """Records, jobs and ledger in one SQLite file, or in memory when `path` is None."""

    poll_seconds = 0.1

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
        super().__init__(db, settings.clock, settings.max_attempts)
        self.default_limits = default_limits(settings)
        self.url = db.name
        self.read_only = db.read_only
        self.folder = None if path is None else path.absolute().parent
        self.reads_at_once = path is not None  # in memory, readers wait for writers

    def close(self) -> None:
        self.db.close()


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
