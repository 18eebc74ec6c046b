"""The SQLite store: its parts put together."""

from __future__ import annotations

from pathlib import Path

from evervec.settings import Settings
from evervec.stores.sql.asking import Asking
from evervec.stores.sql.fleet import Fleet
from evervec.stores.sql.keys import Keys
from evervec.stores.sql.sharing import Sharing
from evervec.stores.sql.versions import Versions
from evervec.stores.sqlite.care import Care
from evervec.stores.sqlite.connections import Connections
from evervec.stores.sqlite.finding import Finding
from evervec.stores.sqlite.looking import Looking
from evervec.stores.sqlite.schema import upgrade


class SqliteStore(Care, Looking, Finding, Sharing, Versions, Fleet, Keys, Asking):
    """Records, jobs and ledger in one SQLite file, or in memory when `path` is None."""

    poll_seconds = 0.1

    def __init__(self, path: Path | None, settings: Settings) -> None:
        db = Connections(path, settings.busy_seconds)
        super().__init__(db, settings.clock, settings.max_attempts)
        self.url = db.name
        self.reads_at_once = path is not None  # in memory readers wait for writers
        try:
            upgrade(db)
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        self.db.close()
