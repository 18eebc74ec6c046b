"""Job management by operators and housekeeping: retry, cancel, set priority, pause, purge."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from evervec.errors import InvalidArgument, InvalidTransition
from evervec.model.jobs import Job, Status
from evervec.queue.transitions import CANCELLED, RETRIED
from evervec.stores.notes import JOBLESS
from evervec.stores.sql.boxes import Boxes
from evervec.stores.sql.engine import EVERYONE, Connection


class Care(Boxes):
    """The part of the store that operators use."""

    def retry(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._job(conn, tenant, job_id)
            if job.status not in RETRIED:
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a failed job can be retried"
                )
            conn.execute(self.sql.retry_one, (self.moment(conn), job_id))
        self.wake()

    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        with self.db.writing(durable=True) as conn:
            changed: int = conn.execute(
                self.sql.retry_failed, (self.moment(conn), tenant, max_retries)
            ).rowcount
        self.wake()
        return changed

    def cancel(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._job(conn, tenant, job_id)
            if job.status not in CANCELLED:
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a pending or failed job can be "
                    "cancelled: delete its record instead"
                )
            conn.execute(self.sql.drop_job, (job_id,))
            with self.counting(conn, [job.record]):
                conn.execute(self.sql.forsake, (self.listed([job.record]),))

    def set_priority(self, tenant: str | None, job_id: int, priority: int) -> None:
        with self.db.writing(durable=True) as conn:
            self._job(conn, tenant, job_id)
            conn.execute(self.sql.set_priority, (priority, job_id))

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
            records = [row[0] for row in conn.execute(self.sql.purge_jobs, which)]
            if records and status is Status.FAILED:
                self._forsake(conn, records)
        return len(records)

    def _forsake(self, conn: Connection, records: Sequence[int]) -> None:
        """Handle records whose jobs were purged, not cancelled: records that never appeared are
        marked deleted, and a note makes the next worker that starts look for the others."""
        with self.counting(conn, records):
            conn.execute(self.sql.forsake, (self.listed(records),))
        first, noted = min(records), False
        while not noted:  # another transaction may write the same note
            row = conn.execute(self.sql.note, (JOBLESS.name,)).fetchone()
            if row is None:
                new = (JOBLESS.name, JOBLESS.write(first), secrets.randbits(62))
                noted = conn.execute(self.sql.add_note, new).rowcount == 1
            else:
                least = JOBLESS.write(min(first, JOBLESS.parse(row[0])))
                noted = conn.execute(self.sql.set_note, (least, JOBLESS.name, row[1])).rowcount == 1

    def purge_orphans(self, limit: int = 1000) -> int:
        with self.db.reading() as conn:
            if not conn.execute(self.sql.orphans, (1,)).fetchall():
                return 0
        while self.pass_boxes_on():
            pass
        with self.db.writing(durable=False) as conn:
            orphans = [row[0] for row in conn.execute(self.sql.orphans, (limit,))]
            records = [row[0] for row in conn.execute(self.sql.drop_jobs, (self.listed(orphans),))]
            if records:
                self._forsake(conn, records)
        return len(records)

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone: int = conn.execute(self.sql.purge_attempts, (before, limit)).rowcount
            removals = conn.execute(self.sql.purge_removed, (before, limit)).fetchall()
            if removals:
                conn.execute(self.sql.removals_purged, max(removals))
                gone += len(removals)
            if found := conn.execute(self.sql.forgotten, (before, limit)).fetchall():
                records = self.listed(row[0] for row in found)
                conn.execute(self.sql.forget_points, (records,))
                with self.counting(conn, [row[0] for row in found]):
                    conn.execute(self.sql.forget_ledger, (records,))
                gone += conn.execute(self.sql.forget_records, (records,)).rowcount
        return gone

    def troubles(self, seconds: float) -> list[str]:
        return []

    def paused(self, tenant: str | None = None) -> bool:
        with self.db.reading() as conn:
            return not {EVERYONE, tenant}.isdisjoint(self.pauses(conn))

    def set_paused(self, paused: bool, tenant: str | None = None) -> None:
        query = self.sql.pause if paused else self.sql.resume
        with self.db.writing(durable=True) as conn:
            conn.execute(query, (EVERYONE if tenant is None else tenant,))
        self.wake()

    def _job(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        rows = conn.execute(self.select_jobs + self.sql.job_by_id, (job_id, tenant)).fetchall()
        if not rows:
            raise InvalidArgument(f"job {job_id} does not exist")
        return self.jobs_of(conn, rows)[0]
