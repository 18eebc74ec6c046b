"""Embedding versions among transactions of other processes, and of callers."""

from __future__ import annotations

from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.leases import Leases
from evervec.stores.sql import versions
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.sharing import Sharing


class Versions(Leases, versions.Versions, Sharing):
    """The part of the store that knows which model made which vectors."""

    def all_know(self, version: int) -> bool:
        """By the first call's list of who was there: all who came later saw the version."""
        name = f"unaware of version {version}"
        with self.db.reading() as conn:
            there = {row[0] for row in conn.execute(SQL.open_transactions)}
        note = self.note(name)
        if note is None:
            self.put_note(name, " ".join(sorted(there)), None)
            return not there
        if there.isdisjoint(note.value.split()):
            self.put_note(name, None, note.revision)
            return True
        return False

    def halt_finishes(self, conn: Connection) -> None:
        conn.execute(SQL.halt_finishes)
