"""Saving and deleting records, with their words for full-text search."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from evervec.stores.duckdb.engine import Engine
from evervec.stores.sql import changes, job_writer, tenants
from evervec.stores.sql.engine import Connection, Values, columns
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.record_rows import RecordValues, Row
from evervec.stores.values import Draft

Place = tuple[str, str | int]
"""a tenant with one of its kinds or versions"""


class JobWriter(job_writer.JobWriter):
    def targets(self, db: Connection, kind: str) -> list[int]:
        with self.db.reading() as conn:  # not the older snapshot of the caller's transaction
            targets = self.versions_of(conn, kind)
            if not targets:
                targets = [self.engine.fresh_number(conn)]
                new = [*targets, kind, self.engine.now()]
                self.db.file.aside(self.sql.add_version, new)
        return targets

    def write_jobs(self, db: Connection, tenant: str, now: float, jobs: list[JobValues]) -> None:
        # a record that is new in this batch has no jobs yet
        if known := [job for job in jobs if job.record != job.seq]:
            asked = (now, *columns(known))
            replaced = set(db.execute(self.sql.replace_jobs, asked).fetchall())
            jobs = [job for job in jobs if (job.record, job.version) not in replaced]
        if jobs:
            db.execute(self.sql.insert_jobs, (tenant, now, *columns(jobs)))


class Tenants(tenants.Tenants):
    """Usage is counted in code: DuckDB has no triggers."""

    def check_kind(self, conn: Connection, tenant: str, kind: str) -> None:
        # the caller's transaction must not begin before `targets`
        with self.db.reading() as other:
            super().check_kind(other, tenant, kind)

    @contextmanager
    def counting_records(self, conn: Connection, records: Collection[int]) -> Iterator[None]:
        """Reads what the records count for before and after the change."""
        query = self.sql.held_records
        before = _held(conn, query, records)
        yield
        for (tenant, kind), more in _differences(before, _held(conn, query, records)):
            self._count(conn, self.sql.add_usage, self.sql.new_usage, (tenant, kind, *more))

    @contextmanager
    def counting_chunks(self, conn: Connection, records: Collection[int]) -> Iterator[None]:
        """Reads how many chunks the records have before and after the change."""
        query = self.sql.held_chunks
        before = _held(conn, query, records)
        yield
        for (tenant, version), more in _differences(before, _held(conn, query, records)):
            self._count(conn, self.sql.add_chunks, self.sql.new_chunks, (tenant, version, *more))

    def count_new(self, conn: Connection, tenant: str, kind: str, records: int, size: int) -> None:
        self._count(conn, self.sql.add_usage, self.sql.new_usage, (tenant, kind, records, size))

    def _count(self, conn: Connection, add: str, insert: str, more: tuple[object, ...]) -> None:
        if conn.execute(add, more).rowcount == 0:
            conn.execute(insert, more)


class Changes(changes.Changes):
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
        self._tenants.count_inserted(db, tenant, kind, records)
        self._index_words(db, records)
        return set()

    def update(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        changed = [r.record for r in records]
        with self._tenants.counting_records(db, changed):
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
        with self._tenants.counting_records(db, [record for *_, record in values]):
            super()._update_quietly(db, values)

    def remove(self, db: Connection, tenant: str, gone: list[tuple[int, int]], now: float) -> None:
        records = [record for _, record in gone]
        with self._tenants.counting_records(db, records):
            super().remove(db, tenant, gone, now)
        db.execute(self.sql.unindex_words, (records,))


def _held(conn: Connection, query: str, records: Collection[int]) -> dict[Place, tuple[int, ...]]:
    if not records:
        return {}
    rows = conn.execute(query, (list(records),)).fetchall()
    return {(tenant, which): tuple(map(int, counts)) for tenant, which, *counts in rows}


def _differences(
    before: dict[Place, tuple[int, ...]], after: dict[Place, tuple[int, ...]]
) -> Iterator[tuple[Place, list[int]]]:
    """How much more there is than before, where it is not the same."""
    for place in before.keys() | after.keys():
        nothing = (0,) * len(before.get(place) or after[place])
        was, now = before.get(place, nothing), after.get(place, nothing)
        if was != now:
            yield place, [n - w for n, w in zip(now, was, strict=True)]
