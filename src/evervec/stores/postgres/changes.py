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
from evervec.stores.postgres.engine import SQL, Engine
from evervec.stores.sql import changes
from evervec.stores.sql.batches import columns
from evervec.stores.sql.changes import Values
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.folding import fold, owner_word
from evervec.stores.sql.records import Row
from evervec.stores.values import Draft

_MANY = 100
"""A batch with at least this many ids, none of them known, is inserted without a check for
concurrent inserts of the same ids."""


def _enqueue_new(on_conflict: str, answer: str) -> str:
    query = SQL.enqueue_new.replace("{on_conflict}", on_conflict)
    return query.replace("{answer}", answer)


_ENQUEUE_ALL = _enqueue_new("", SQL.enqueued_all)
_ENQUEUE_SOME = _enqueue_new("on conflict (tenant, kind, id) do nothing", SQL.enqueued_some)


class Changes(Engine, changes.Changes):
    """The part of the store that saves what callers write."""

    def _targets(self, db: Connection, kind: str) -> list[int]:
        targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
        if targets:
            return targets
        with self.db.aside() as aside:
            while not targets:
                aside.execute(SQL.add_version, (kind,))
                targets = [row[0] for row in aside.execute(SQL.targets, (kind,))]
        return targets

    def lock_tenant(self, conn: Connection, tenant: str) -> None:
        conn.execute(SQL.lock_tenant, (tenant,))

    def fold_usage(self, limit: int = 10_000) -> int:
        with self.db.reading() as conn:
            if conn.execute(SQL.any_usage_changes).fetchone() is None:
                return 0
        with self.db.writing(durable=False) as conn:
            folded: int = conn.execute(SQL.fold_usage, (limit,)).fetchone()[0]
        return folded

    def _need_app(self, db: Connection, kind: str) -> None:
        """Uses a separate transaction, so that processes that create a kind do not wait for the
        caller's transaction."""
        if db.execute(SQL.needs_app, (kind,)).fetchone()[0]:
            with self.db.aside() as aside:
                aside.execute(SQL.need_app, (kind,))

    def lock_records(self, db: Connection, records: Sequence[int]) -> None:
        db.execute(SQL.lock_revealed, (list(records),))

    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        if not db.execute(SQL.lock_records, (tenant, kind, sorted(ids))).rowcount:
            return {}
        return super()._known(db, tenant, kind, ids, version)

    def _insert(self, db: Connection, tenant: str, kind: str, values: list[Values]) -> set[str]:
        if not values:
            return set()
        values.sort(key=lambda row: row[1])
        head = (tenant, kind, owner_word(tenant))
        made = db.execute(SQL.insert_records, (*head, *columns(values)))
        return {row[1] for row in values} - {row[0] for row in made}

    def _update(self, db: Connection, tenant: str, values: list[Values]) -> None:
        db.execute(SQL.update_records, (owner_word(tenant), *columns(values)))

    def _words(self, draft: Draft) -> tuple[str, str]:
        return fold(draft.title or ""), fold(draft.text)

    def _enqueue_new(
        self,
        db: Any,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        targets: list[int],
        plan: Draft,
        now: float,
    ) -> dict[str, EnqueueResult]:
        """Enqueue the ids of a batch that have no record yet, in one statement."""
        attempts = plan.max_attempts or self._max_attempts
        unique = list(dict.fromkeys(ids))
        values = (tenant, kind, unique, now, targets, plan.priority, plan.delay, attempts)
        if len(unique) >= _MANY and not db.execute(SQL.any_known, values[:3]).fetchone()[0]:
            # `on conflict` would look up each id again, a quarter of the time: try without it first
            with suppress(psycopg.errors.UniqueViolation), step(db):
                jobs = db.execute(_ENQUEUE_ALL, values, binary=True).fetchone()[0]
                return {id: EnqueueResult(job, True) for id, job in zip(unique, jobs, strict=True)}
        rows = db.execute(_ENQUEUE_SOME, values).fetchall()
        ids_of = {record: id for record, id, _ in rows if id is not None}
        return {
            ids_of[record]: EnqueueResult(job_id, True)
            for record, _, job_id in rows
            if job_id is not None
        }
