"""Embedding versions, with concurrent transactions of other processes and of callers."""

from __future__ import annotations

from evervec.stores.notes import UNAWARE
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import versions
from evervec.stores.sql.engine import Connection


class Versions(versions.Versions):
    def track_unaware(self, version: int, state: str = "building") -> bool:
        """The first call in a state saves a list of the open transactions; later transactions see
        the new state. A transaction that is prepared meanwhile gets a new identity. Therefore, when
        the last listed transaction has ended, the call waits for those that are prepared then."""
        note = UNAWARE.of(version, state)
        with self.db.reading() as conn:
            # in this order: a transaction is prepared, never unprepared
            opened = {id for (id,) in conn.execute(SQL.open_transactions)}
            prepared = {id for (id,) in conn.execute(SQL.prepared_transactions)}
        there = opened | prepared
        awaited, revision = note.read(self._shared)
        if awaited is None:
            if there:
                note.swap(self._shared, there, None)
            return not there
        if not awaited.isdisjoint(there):
            return False
        if prepared and not all(map(_is_prepared, awaited)):
            note.swap(self._shared, prepared, revision)
            return False
        note.swap(self._shared, None, revision)
        return True

    def forget(self, version: int) -> None:
        super().forget(version)
        for state in ("building", "retired"):
            UNAWARE.of(version, state).put(self._shared, None)

    def _halt_finishes(self, conn: Connection) -> None:
        conn.execute(SQL.halt_finishes)


def _is_prepared(transaction: str) -> bool:
    return transaction.startswith("prepared ")
