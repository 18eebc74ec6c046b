"""Enqueueing: jobs for records as they are stored, and for rows that evervec does not own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.model.jobs import EnqueueResult
from evervec.queue.transitions import to_enqueue
from evervec.stores.sql.batches import retried
from evervec.stores.sql.changes import Changes, stub_values
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.records import NewJob, Row
from evervec.stores.values import Draft


class Enqueueing(Changes):
    """The part of the store that enqueues jobs without content."""

    @retried
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
        how = (loaded, owing)
        with self.db.writing(durable=True, conn=conn) as db:
            if bounded:
                self.check_kind(db, tenant, kind)
            targets = self._targets(db, kind)
            if app:
                self._need_app(db, kind)
            if bounded:
                self.check_count(db, tenant, ids, kind)
            now = self.moment(db)
            results = self._enqueue_new(db, tenant, kind, ids, targets, plan, now)
            left = set(ids) - results.keys()
            while left:  # the next pass sees rows that another transaction has just inserted
                left = self._enqueue(db, tenant, kind, left, targets, plan, how, now, results)
            self.announce(db, conn)
        if all(result.is_new for result in results.values()):
            self.tell()
        else:
            self.wake()
        first = set[str]()
        answers = []
        for id in ids:
            result = results[id]
            answers.append(EnqueueResult(result.job_id, False) if id in first else result)
            first.add(id)
        return answers

    def _need_app(self, db: Connection, kind: str) -> None:
        """Record that only a process that registered the kind can do its jobs."""
        db.execute(self.sql.need_app, (kind,))

    def _enqueue_new(
        self,
        db: Connection,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        targets: list[int],
        plan: Draft,
        now: float,
    ) -> dict[str, EnqueueResult]:
        """Enqueue the unknown ids of a batch, in engines that can do this in one statement."""
        return {}

    def _enqueue(
        self,
        db: Connection,
        tenant: str,
        kind: str,
        ids: set[str],
        targets: list[int],
        plan: Draft,
        how: tuple[bool, bool],
        now: float,
        results: dict[str, EnqueueResult],
    ) -> set[str]:
        loaded, owing = how
        rows = self._known(db, tenant, kind, ids, targets[0])
        numbers = self.take_numbers(db, len(ids) * (1 + len(targets)))
        stubs, jobs = [], list[NewJob]()
        for id in sorted(ids):
            row = rows.get(id) or Row(id, state="hidden")
            known = row.job_id
            row.take(numbers, len(targets))
            row.draft = plan
            if not row.record:
                row.record = row.seq
                stubs.append(stub_values(row, tenant, kind, now))
            results[id] = EnqueueResult(row.job_id, not known)
            jobs.append((row, to_enqueue(row.state, loaded), None))
        lost = self._insert(db, tenant, kind, stubs)
        jobs = [job for job in jobs if job[0].id not in lost]
        if owing:
            self.put_enqueued(db, tenant, targets, now, jobs, is_loaded=loaded)
        else:
            self._put_jobs(db, tenant, targets, now, jobs)
        return lost
