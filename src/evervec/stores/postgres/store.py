"""The PostgreSQL store, composed of its parts."""

from __future__ import annotations

from evervec.settings import Settings
from evervec.stores.postgres.care import Care
from evervec.stores.postgres.connections import Connections
from evervec.stores.postgres.filters import Filter
from evervec.stores.postgres.finding import Finding
from evervec.stores.postgres.looking import Looking
from evervec.stores.postgres.schema import upgrade
from evervec.stores.postgres.versions import Versions
from evervec.stores.sql.asking import Asking
from evervec.stores.sql.audit import Audit
from evervec.stores.sql.fleet import Fleet
from evervec.stores.sql.keys import Keys
from evervec.stores.sql.tenants import default_limits


class PostgresStore(Versions, Care, Looking, Finding, Fleet, Keys, Asking, Audit):
    """Records, jobs and ledger in the schema `evervec` of a database."""

    poll_seconds = 1.0
    reads_at_once = False
    filter = Filter

    def __init__(self, url: str, settings: Settings) -> None:
        db = Connections(url, settings)
        super().__init__(db, settings.clock, settings.max_attempts, settings.listen)
        self.default_limits = default_limits(settings)
        self.url = db.name
        try:
            upgrade(db)
        except BaseException:
            db.close()
            raise

    def close(self) -> None:
        if self.listening is not None:
            self.listening.close()
        self.db.close()
