"""What people and housekeeping do to jobs: retry, cancel, reorder, pause, purge."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from evervec.errors import InvalidArgument, InvalidTransition
from evervec.model import Job, Op, Status
from evervec.stores.base import Draft
from evervec.stores.sqlite.changes import Row
from evervec.stores.sqlite.engine import SQL, jobs_of, listed
from evervec.stores.sqlite.leases import SELECT_JOBS, Leases


class Care(Leases):
    """The part of the store that operators use."""

    def retry(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._job(conn, tenant, job_id)
            if job.status is not Status.FAILED:
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a failed job can be retried"
                )
            conn.execute(SQL.retry_one, (self.now(), job_id))
        self.wake()

    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        with self.db.writing(durable=True) as conn:
            changed = conn.execute(SQL.retry_failed, (self.now(), tenant, max_retries)).rowcount
        self.wake()
        return changed

    def cancel(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._job(conn, tenant, job_id)
            if job.status not in (Status.PENDING, Status.FAILED):
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a pending or failed job can be "
                    "cancelled: delete its record instead"
                )
            conn.execute(SQL.drop_job, (job_id,))
            conn.execute(SQL.forsake, (listed([job.record]),))

    def set_priority(self, tenant: str | None, job_id: int, priority: int) -> None:
        with self.db.writing(durable=True) as conn:
            self._job(conn, tenant, job_id)
            conn.execute(SQL.set_priority, (priority, job_id))

    def purge(
        self,
        status: Status,
        before: float,
        *,
        tenant: str | None = None,
        boxed: bool = False,
        limit: int = 1000,
    ) -> int:
        with self.db.writing(durable=False) as conn:
            which = (status.value, before, tenant, boxed, limit)
            records = [row[0] for row in conn.execute(SQL.purge_jobs, which)]
            if records and status is Status.FAILED:
                conn.execute(SQL.forsake, (listed(records),))
        return len(records)

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            removals = conn.execute(SQL.purge_removed, (before, limit)).fetchall()
            if removals:
                conn.execute(SQL.removals_purged, max(removals))
                gone += len(removals)
            records = listed(r[0] for r in conn.execute(SQL.forgotten, (before, limit)))
            conn.execute(SQL.forget_points, (records,))
            conn.execute(SQL.forget_ledger, (records,))
            gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone

    def tend(self) -> None:
        self.db.checkpoint()

    def check(self) -> str | None:
        with self.db.reading() as conn:
            answer: str = conn.execute("pragma quick_check(1)").fetchone()[0]
        return None if answer == "ok" else answer

    def paused(self) -> bool:
        with self.db.reading() as conn:
            return bool(conn.execute(SQL.paused).fetchone()[0])

    def set_paused(self, paused: bool) -> None:
        with self.db.writing(durable=True) as conn:
            conn.execute(SQL.set_paused, (int(paused),))
        self.wake()

    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.now()
            found = conn.execute(SQL.reopen, (listed(records), version)).fetchall()
            number = self.take_numbers(conn, 2 * len(found)) if found else 0
            for record, tenant, state, boxed in found:
                op = Op.OPEN if boxed else Op.EMBED if state == "live" else Op.DELETE
                row = Row("", record=record, seq=number, job_id=number + 1)
                row.draft = Draft("", "", b"", priority=priority)
                self._put_jobs(conn, tenant, [version], now, [(row, op, None)])
                number += 2
            if forget:
                conn.executemany(
                    SQL.drop_ledger, [(record, version, number) for record, *_ in found]
                )
        self.wake()
        return len(found)

    def _job(self, conn: sqlite3.Connection, tenant: str | None, job_id: int) -> Job:
        rows = conn.execute(SELECT_JOBS + SQL.job_by_id, (job_id, tenant)).fetchall()
        if not rows:
            raise InvalidArgument(f"there is no job {job_id}")
        return jobs_of(conn, rows)[0]
