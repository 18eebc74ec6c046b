"""Embedding versions, with concurrent transactions of other processes and of callers."""

from __future__ import annotations

from collections.abc import Callable

from evervec.stores.notes import UNAWARE
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import versions
from evervec.stores.sql.engine import Connection, Engine
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.shared import Shared
from evervec.stores.sql.tenants import Tenants


class Versions(versions.Versions):
    def __init__(self, engine: Engine, tenants: Tenants, writer: JobWriter, shared: Shared) -> None:
        super().__init__(engine, tenants, writer, shared)
        self._walks: dict[tuple[str, int], tuple[int, bool]] = {}
        """for a query and a version, up to which number it has come, and whether nothing is left"""

    def _drop_jobs(self, conn: Connection, version: int, limit: int) -> int:
        def drop(after: int) -> list[int]:
            rows = conn.execute(SQL.drop_version_jobs, (version, limit, after))
            return [job_id for _, job_id in rows.fetchall()]

        return len(self._walk(conn, ("jobs", version), drop))

    def _records_of(self, conn: Connection, version: int, limit: int) -> list[int]:
        def find(after: int) -> list[int]:
            rows = conn.execute(SQL.version_records, (version, limit, after))
            return [record for (record,) in rows.fetchall()]

        return self._walk(conn, ("ledger", version), find)

    def _walk(
        self, conn: Connection, what: tuple[str, int], find: Callable[[int], list[int]]
    ) -> list[int]:
        """What `find` returns after the place where the last call ended: no index finds the rows of
        a version, and a search from the beginning would pass those of others each time. At the end
        it starts once more, because the transaction of an earlier call may have been rolled back."""
        place, is_done = self._walks.get(what, (0, False))
        found = find(place)
        if not found and place and not is_done:
            found = find(0)
        if found:
            self._walks[what] = (max(found), False)
        else:
            (last,) = conn.execute(SQL.last_number).fetchone()
            self._walks[what] = (last, True)
        return found

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
        for table in ("jobs", "ledger"):
            self._walks.pop((table, version), None)

    def _halt_finishes(self, conn: Connection) -> None:
        conn.execute(SQL.halt_finishes)


def _is_prepared(transaction: str) -> bool:
    return transaction.startswith("prepared ")
