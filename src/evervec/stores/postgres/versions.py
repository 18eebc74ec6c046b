"""Embedding versions, with concurrent transactions of other processes and of callers."""

from __future__ import annotations

from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import versions
from evervec.stores.sql.engine import Connection


class Versions(versions.Versions):
    """The part of the store that knows which model made which vectors."""

    def all_know(self, version: int, state: str = "building") -> bool:
        """The first call in a state saves a list of the open transactions; later transactions see
        the new state. A transaction that is prepared meanwhile gets a new identity. Therefore, when
        the last listed transaction has ended, the call waits for those that are prepared then."""
        name = _unaware(version, state)
        with self.db.reading() as conn:
            # in this order: a transaction is prepared, never unprepared
            opened = {id for (id,) in conn.execute(SQL.open_transactions)}
            prepared = {id for (id,) in conn.execute(SQL.prepared_transactions)}
        there = opened | prepared
        note = self._shared.note(name)
        if note is None:
            if there:
                self._shared.put_note(name, "|".join(sorted(there)), None)
            return not there
        awaited = set(note.value.split("|"))
        if not awaited.isdisjoint(there):
            return False
        if prepared and not all(map(_is_prepared, awaited)):
            self._shared.put_note(name, "|".join(sorted(prepared)), note.revision)
            return False
        self._shared.put_note(name, None, note.revision)
        return True

    def forget(self, version: int) -> None:
        super().forget(version)
        for state in ("building", "retired"):
            name = _unaware(version, state)
            if note := self._shared.note(name):
                self._shared.put_note(name, None, note.revision)

    def _halt_finishes(self, conn: Connection) -> None:
        conn.execute(SQL.halt_finishes)


def _unaware(version: int, state: str) -> str:
    """Name of the note that lists the transactions that may not see a version's new state."""
    return f"unaware that {version} is {state}"


def _is_prepared(transaction: str) -> bool:
    return transaction.startswith("prepared ")
