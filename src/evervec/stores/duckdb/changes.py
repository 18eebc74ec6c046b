"""Saving and deleting records, with their words for full-text search."""

from __future__ import annotations

from evervec.stores.duckdb.engine import Engine
from evervec.stores.sql import changes
from evervec.stores.sql.engine import Connection, Values, columns
from evervec.stores.sql.record_rows import RecordValues, Row
from evervec.stores.sql.tenants import size_of
from evervec.stores.values import Draft


class Changes(changes.Changes):
    """The part of the store that saves what callers write."""

    engine: Engine

    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        (known,) = db.execute(self.sql.any_known, (tenant, kind, list(ids))).fetchone()
        if not known:
            return {}  # the usual case, in less than half the time
        return super()._known(db, tenant, kind, ids, version)

    def words(self, draft: Draft) -> tuple[str, str]:
        return self.engine.stemmed(draft.title or ""), self.engine.stemmed(draft.text)

    def _insert(
        self, db: Connection, tenant: str, kind: str, records: list[RecordValues]
    ) -> set[str]:
        db.execute(self.sql.insert_records, (tenant, kind, *columns(records)))
        self._tenants.count_new(db, tenant, kind, len(records), sum(map(size_of, records)))
        self._index_words(db, records)
        return set()

    def update(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        changed = [r.record for r in records]
        with self._tenants.counting(db, changed):
            db.execute(self.sql.update_records, columns(records))
        db.execute(self.sql.unindex_words, (changed,))
        self._index_words(db, records)

    def _index_words(self, db: Connection, records: list[RecordValues]) -> None:
        shown = [
            (r.record, f"{r.title_words} {r.title_words} {r.text_words}")
            for r in records
            if r.text_words is not None
        ]
        self.engine.each(db, self.sql.index_words, shown)

    def _update_quietly(self, db: Connection, values: list[Values]) -> None:
        with self._tenants.counting(db, [record for *_, record in values]):
            super()._update_quietly(db, values)
        self.engine.fresh_number(db)  # changes `mark`, which invalidates caches of these records

    def remove(self, db: Connection, tenant: str, gone: list[tuple[int, int]], now: float) -> None:
        records = [record for _, record in gone]
        with self._tenants.counting(db, records):
            super().remove(db, tenant, gone, now)
        db.execute(self.sql.unindex_words, (records,))
