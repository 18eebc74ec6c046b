"""Saving and deleting while other processes do the same.

The rows of a batch are locked in the order of their keys, so that two batches cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psycopg

from evervec.model.jobs import EnqueueResult
from evervec.stores.postgres.connections import step
from evervec.stores.postgres.engine import SQL
from evervec.stores.postgres.full_text import vector_text
from evervec.stores.sql import changes, job_writer, tenants
from evervec.stores.sql.changes import Enqueued
from evervec.stores.sql.engine import Connection, columns
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.record_rows import RecordValues, Row
from evervec.stores.sql.words import owner_word
from evervec.stores.values import Draft

_MANY = 100
"""A batch with at least this many ids, none of them known, is inserted without a check for
concurrent inserts of the same ids."""


def _enqueue_new(on_conflict: str, answer: str) -> str:
    query = SQL.enqueue_new.replace("{on_conflict}", on_conflict)
    return query.replace("{answer}", answer)


_ENQUEUE_ALL = _enqueue_new("", SQL.enqueued_all)
_ENQUEUE_SOME = _enqueue_new("on conflict (tenant, kind, id) do nothing", SQL.enqueued_some)


_INSERT_ALL = SQL.insert_records.replace("{on_conflict}", "")
_INSERT_SOME = SQL.insert_records.replace("{on_conflict}", SQL.unless_known)


class JobWriter(job_writer.JobWriter):
    def targets(self, db: Connection, kind: str) -> list[int]:
        targets = self.versions_of(db, kind)
        if targets:
            return targets
        with self.db.aside() as aside:
            while not targets:
                aside.execute(self.sql.add_version, (kind,))
                targets = self.versions_of(aside, kind)
        return targets

    def write_first_jobs(
        self, db: Connection, tenant: str, now: float, jobs: list[JobValues]
    ) -> None:
        """`on conflict` would look for each job before it is inserted, a fifth of the time."""
        db.execute(SQL.insert_jobs, (tenant, now, *columns(jobs)))

    def lock_records(self, conn: Connection, records: Sequence[int]) -> None:
        conn.execute(self.sql.lock_revealed, (list(records),))


class Tenants(tenants.Tenants):
    """Usage is logged by triggers, so that concurrent writers do not wait for each other."""

    def lock_tenant(self, conn: Connection, tenant: str) -> None:
        conn.execute(self.sql.lock_tenant, (tenant,))

    def fold_usage(self, limit: int = 10_000) -> int:
        if not self.read(self.sql.any_usage_changes):
            return 0
        with self.db.writing(durable=False) as conn:
            (folded,) = conn.execute(self.sql.fold_usage, (limit,)).fetchone()
        return int(folded)


class Changes(changes.Changes):
    def _need_app(self, db: Connection, kind: str) -> None:
        """Uses a separate transaction, so that processes that create a kind do not wait for the
        caller's transaction."""
        (needed,) = db.execute(SQL.needs_app, (kind,)).fetchone()
        if needed:
            with self.db.aside() as aside:
                aside.execute(SQL.need_app, (kind,))

    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        if not db.execute(SQL.lock_records, (tenant, kind, sorted(ids))).rowcount:
            return {}
        return super()._known(db, tenant, kind, ids, version)

    def words(self, draft: Draft) -> tuple[str, str]:
        """Those of the title are in one vector with those of the text."""
        return "", vector_text(draft.title or "", draft.text)

    def _insert(
        self, db: Connection, tenant: str, kind: str, records: list[RecordValues]
    ) -> set[str]:
        records.sort(key=lambda r: r.id)
        values = (tenant, kind, owner_word(tenant), *columns(records))
        if len(records) >= _MANY:
            # as in `_enqueue_new`: a fifth of the time, without that of full text
            with suppress(psycopg.errors.UniqueViolation), step(db):
                db.execute(_INSERT_ALL, values)
                return set()
        made = {id for (id,) in db.execute(_INSERT_SOME, values)}
        return {r.id for r in records} - made

    def update(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        db.execute(SQL.update_records, (owner_word(tenant), *columns(records)))

    def _enqueue_new(
        self, db: Any, batch: Enqueued, ids: Sequence[str]
    ) -> dict[str, EnqueueResult]:
        """Enqueue the ids of a batch that have no record yet, in one statement."""
        tenant, kind, targets, plan, now = batch
        attempts = plan.max_attempts or self.engine.max_attempts
        unique = list(dict.fromkeys(ids))
        values = (tenant, kind, unique, now, targets, plan.priority, plan.delay, attempts)
        if len(unique) >= _MANY and not self._any_known(db, tenant, kind, unique):
            # `on conflict` would look up each id again, a quarter of the time: try without it first
            with suppress(psycopg.errors.UniqueViolation), step(db):
                (jobs,) = db.execute(_ENQUEUE_ALL, values, binary=True).fetchone()
                return {id: EnqueueResult(job, True) for id, job in zip(unique, jobs, strict=True)}
        rows = db.execute(_ENQUEUE_SOME, values).fetchall()
        ids_of = {record: id for record, id, _ in rows if id is not None}
        return {
            ids_of[record]: EnqueueResult(job_id, True)
            for record, _, job_id in rows
            if job_id is not None
        }

    def _any_known(self, db: Any, tenant: str, kind: str, ids: list[str]) -> bool:
        (known,) = db.execute(SQL.any_known, (tenant, kind, ids)).fetchone()
        return bool(known)
