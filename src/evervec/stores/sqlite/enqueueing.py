"""Enqueueing: jobs for records as they are stored, and for rows that evervec does not own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import repeat
from typing import Any, NamedTuple

from evervec.model.jobs import EnqueueResult
from evervec.queue.transitions import to_enqueue
from evervec.stores.sql.records import NewJob, Row, stub_of
from evervec.stores.sqlite.changes import Changes
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.values import Draft


class _Batch(NamedTuple):
    """Records of one kind that are enqueued in the same way."""

    tenant: str
    kind: str
    ids: Sequence[str]
    targets: list[int]
    plan: Draft
    now: float


class Enqueueing(Changes):
    """The part of the store that enqueues jobs without content."""

    def enqueue(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        *,
        loaded: bool,
        owing: bool = True,
        app: bool = False,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        bounded: bool = False,
        conn: Any = None,
    ) -> list[EnqueueResult]:
        plan = Draft("", "", b"", priority=priority, delay=delay, max_attempts=max_attempts)
        with self.db.writing(durable=True, conn=conn) as db:
            if bounded:
                self.check_kind(db, tenant, kind)
                self.check_count(db, tenant, ids, kind)
            now = self.now()
            targets = self._targets(db, kind, now)
            if app:
                db.execute(SQL.need_app, (kind,))
            batch = _Batch(tenant, kind, ids, targets, plan, now)
            results = self._enqueue_new(db, batch)
            if results is None:
                results = self._enqueue_each(db, batch, loaded, owing)
        self.wake()
        return results

    def _enqueue_each(
        self, db: sqlite3.Connection, batch: _Batch, loaded: bool, owing: bool
    ) -> list[EnqueueResult]:
        """Enqueue a batch of which some records are known."""
        tenant, kind, ids, targets, plan, now = batch
        rows = self._known(db, tenant, kind, set(ids), targets[0])
        step = 1 + len(targets)
        number = self.take_numbers(db, len(set(ids)) * step)
        results, stubs = [], []
        jobs: list[NewJob] = []
        for id in ids:
            row = rows.get(id)
            if row is None:
                row = rows[id] = Row(id, record=number, state="hidden")
                stubs.append(stub_of(row, tenant, kind, number, now))
            if row.draft is None:  # once for each record of the batch
                results.append(EnqueueResult(row.job_id or number + 1, not row.job_id))
                row.take(iter(range(number, number + step)), len(targets))
                row.draft = plan
                number += step
                jobs.append((row, to_enqueue(row.state, loaded), None))
            else:
                results.append(EnqueueResult(row.job_id, False))
        if stubs:
            db.executemany(SQL.insert_record, stubs)
            db.execute(SQL.count_new, (tenant, kind, len(stubs), 0))
        if owing:
            self.put_enqueued(db, tenant, targets, now, jobs, is_loaded=loaded)
        else:
            self._put_jobs(db, tenant, targets, now, jobs)
        return results

    def _enqueue_new(self, db: sqlite3.Connection, batch: _Batch) -> list[EnqueueResult] | None:
        """Enqueue a batch of new records, with one statement per table and version. Returns None,
        and changes nothing, if any record is known."""
        tenant, kind, ids, targets, plan, now = batch
        step, listing = 1 + len(targets), listed(ids)
        first = self.take_numbers(db, len(ids) * step)
        attempts = plan.max_attempts or self._max_attempts
        db.execute("savepoint evervec_new")
        try:
            db.execute(SQL.insert_stubs, (first, step, tenant, kind, now, listing))
        except sqlite3.IntegrityError:
            db.execute("rollback to evervec_new")
            return None
        finally:
            db.execute("release evervec_new")
        db.execute(SQL.count_new, (tenant, kind, len(ids), 0))
        for place, version in enumerate(targets, 1):
            db.execute(
                SQL.insert_loads,
                (first, step, place, version, tenant, plan.priority, now + plan.delay, attempts,
                 now, listing),
            )  # fmt: skip
        numbers = range(first + 1, first + 1 + len(ids) * step, step)
        # the same as calling EnqueueResult for each number, in a third of the time
        fields = zip(numbers, repeat(True), repeat(None), strict=False)
        return list(map(tuple.__new__, repeat(EnqueueResult), fields))
