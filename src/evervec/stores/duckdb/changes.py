"""Saving and deleting records, with their words for full-text search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from evervec.stores.duckdb.connections import Connections
from evervec.stores.duckdb.engine import SQL, Engine
from evervec.stores.duckdb.stems import Stems
from evervec.stores.sql import changes
from evervec.stores.sql.batches import columns
from evervec.stores.sql.changes import Values
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.folding import fold
from evervec.stores.sql.records import Row
from evervec.stores.sql.tenants import bytes_of
from evervec.stores.values import Draft

_NOTHING = (0, 0, 0)
_CONTENT = slice(10, 14)
"""title, metadata, data and text among the values of a new record"""


class Changes(Engine, changes.Changes):
    """The part of the store that saves what callers write."""

    def __init__(self, db: Connections, clock: Callable[[], float], max_attempts: int) -> None:
        super().__init__(db, clock, max_attempts)
        self.stems = Stems()

    def check_kind(self, conn: Connection, tenant: str, kind: str) -> None:
        with (
            self.db.reading() as other
        ):  # the caller's transaction must not begin before `_targets`
            super().check_kind(other, tenant, kind)

    def _targets(self, db: Connection, kind: str) -> list[int]:
        with self.db.reading() as conn:  # not the older snapshot of the caller's transaction
            targets = [row[0] for row in conn.execute(SQL.targets, (kind,))]
            if not targets:
                targets = [self.fresh_number(conn)]
                self.db.file.aside(SQL.add_version, [targets[0], kind, self.now()])
        return targets

    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        if db.execute(SQL.any_known, (tenant, kind, list(ids))).fetchone() is None:
            return {}  # the usual case, in less than half the time
        return super()._known(db, tenant, kind, ids, version)

    @contextmanager
    def counting(self, conn: Connection, records: Collection[int]) -> Iterator[None]:
        """DuckDB has no triggers: usage of the records is read before and after the change."""
        if not records:
            yield
            return
        before = self._counted(conn, records)
        yield
        after = self._counted(conn, records)
        for place in before.keys() | after.keys():
            was, now = before.get(place, _NOTHING), after.get(place, _NOTHING)
            self._count(conn, *place, *(n - w for n, w in zip(now, was, strict=True)))

    def _counted(
        self, conn: Connection, records: Collection[int]
    ) -> dict[tuple[str, str | None, int | None], tuple[int, ...]]:
        """Records, bytes and chunks by tenant and kind, or tenant and version."""
        rows = conn.execute(SQL.held_usage, (list(records),)).fetchall()
        return {row[:3]: tuple(map(int, row[3:])) for row in rows}

    def _count(
        self,
        conn: Connection,
        tenant: str,
        kind: str | None,
        version: int | None,
        records: int,
        size: int,
        chunks: int,
    ) -> None:
        if version is None and (records or size):
            more = (tenant, kind, records, size)
            if conn.execute(SQL.add_usage, more).rowcount == 0:
                conn.execute(SQL.new_usage, more)
        elif chunks:
            some = (tenant, version, chunks)
            if conn.execute(SQL.add_chunks, some).rowcount == 0:
                conn.execute(SQL.new_chunks, some)

    def _insert(self, db: Connection, tenant: str, kind: str, values: list[Values]) -> set[str]:
        if values:
            db.execute(SQL.insert_records, (tenant, kind, *columns(values)))
            size = sum(bytes_of(*row[_CONTENT]) for row in values)
            self._count(db, tenant, kind, None, len(values), size, 0)
            self._index_words(db, values)
        return set()

    def _update(self, db: Connection, tenant: str, values: list[Values]) -> None:
        records = [row[0] for row in values]
        with self.counting(db, records):
            db.execute(SQL.update_records, columns(values))
        db.execute(SQL.unindex_words, (records,))
        self._index_words(db, values)

    def _index_words(self, db: Connection, values: list[Values]) -> None:
        shown = [
            (row[0], f"{row[-2]} {row[-2]} {row[-1]}") for row in values if row[-1] is not None
        ]
        if shown:
            db.execute(SQL.index_words, columns(shown))

    def _update_quietly(self, db: Connection, values: list[Values]) -> None:
        with self.counting(db, [row[-1] for row in values]):
            super()._update_quietly(db, values)
        self.fresh_number(db)  # changes `mark`, which invalidates caches of these records

    def _delete(self, db: Connection, values: list[Values], now: float) -> None:
        with self.counting(db, [record for _, record in values]):
            super()._delete(db, values, now)
        db.execute(SQL.unindex_words, ([record for _, record in values],))

    def _write_jobs(self, db: Connection, tenant: str, now: float, values: list[Values]) -> None:
        there = [row[1:] for row in values if row[1] != row[6]]  # skips records new in this batch
        if there:
            replaced = set(db.execute(SQL.replace_jobs, columns(there)))
            values = [row for row in values if row[1:3] not in replaced]
        if values:
            db.execute(SQL.insert_jobs, (tenant, now, *columns(values)))

    def _words(self, draft: Draft) -> tuple[str, str]:
        return self.stemmed(draft.title or ""), self.stemmed(draft.text)

    def stemmed(self, text: str) -> str:
        """The stems of a text's words, separated by spaces."""
        return " ".join(self.stems.of(fold(text).lower().split()))
