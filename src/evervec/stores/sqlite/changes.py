"""Saving, deleting and enqueueing under the write lock, with the records' full text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat

from evervec.model.jobs import EnqueueResult
from evervec.stores.sql import changes, job_writer, tenants
from evervec.stores.sql.changes import Enqueued
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.record_rows import RecordValues
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.values import Draft


def scope(tenant: str) -> str:
    """The word that restricts a full-text search to this tenant's records."""
    return "t" + tenant.encode().hex()


class JobWriter(job_writer.JobWriter):
    def targets(self, db: Connection, kind: str) -> list[int]:
        targets = self.versions_of(db, kind)
        if not targets:
            targets = [self.engine.fresh_number(db)]
            db.execute(SQL.add_version, (*targets, kind, self.engine.now()))
        return targets

    def write_jobs(self, db: Connection, tenant: str, now: float, jobs: list[JobValues]) -> None:
        rows = [(tenant, now, job.scheduled_for > now, *job) for job in jobs]
        self.engine.each(db, SQL.put_job, rows)


class Tenants(tenants.Tenants):
    """Usage is counted by triggers, except for new records."""

    def count_new(self, conn: Connection, tenant: str, kind: str, records: int, size: int) -> None:
        conn.execute(SQL.count_new, (tenant, kind, records, size))


class Changes(changes.Changes):
    @contextmanager
    def together(self) -> Iterator[sqlite3.Connection]:
        with self.db.writing(durable=True) as conn:
            yield conn
        self.engine.wake()

    def words(self, draft: Draft) -> tuple[str, str]:
        return draft.title or "", draft.text

    def _insert(
        self, db: Connection, tenant: str, kind: str, records: list[RecordValues]
    ) -> set[str]:
        self.engine.each(db, SQL.insert_record, [(tenant, kind, *r.stored) for r in records])
        self._tenants.count_inserted(db, tenant, kind, records)
        self._index_text(db, tenant, records)
        return set()

    def update(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        self._unindex_text(db, tenant, [r.record for r in records])
        db.executemany(SQL.update_record, [r.stored for r in records])
        self._index_text(db, tenant, records)

    def remove(self, db: Connection, tenant: str, gone: list[tuple[int, int]], now: float) -> None:
        self._unindex_text(db, tenant, [record for _, record in gone])
        db.executemany(SQL.delete_record, [(now, *which) for which in gone])

    def _index_text(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        word = scope(tenant)
        shown = [
            (r.record, word, r.title_words, r.text_words)
            for r in records
            if r.text_words is not None
        ]
        db.executemany(SQL.index_text, shown)

    def _unindex_text(self, db: Connection, tenant: str, records: Iterable[int]) -> None:
        """Before the change: the index finds what to remove by the text as it is."""
        numbers = listed(records)
        db.execute(SQL.unindex_text, (scope(tenant), numbers))
        db.execute(SQL.note_rewritten, (tenant, numbers))

    def _enqueue_new(
        self, db: Connection, batch: Enqueued, ids: Sequence[str]
    ) -> dict[str, EnqueueResult]:
        """Enqueue a batch of new records, with one statement per table and version. Changes
        nothing if any record is known."""
        tenant, kind, targets, plan, now = batch
        step, listing = 1 + len(targets), listed(ids)
        first = next(self.engine.numbers(db, len(ids) * step))
        attempts = plan.max_attempts or self.engine.max_attempts
        db.execute("savepoint evervec_new")
        try:
            db.execute(SQL.insert_stubs, (first, step, tenant, kind, now, listing))
        except sqlite3.IntegrityError:
            db.execute("rollback to evervec_new")
            return {}
        finally:
            db.execute("release evervec_new")
        self._tenants.count_new(db, tenant, kind, len(ids), 0)
        for place, version in enumerate(targets, 1):
            db.execute(
                SQL.insert_loads,
                (first, step, place, version, tenant, plan.priority, now + plan.delay, attempts,
                 now, listing),
            )  # fmt: skip
        numbers = range(first + 1, first + 1 + len(ids) * step, step)
        # the same as calling EnqueueResult for each number, in a third of the time
        fields = zip(numbers, repeat(True), repeat(None), strict=False)
        return dict(zip(ids, map(tuple.__new__, repeat(EnqueueResult), fields), strict=True))
