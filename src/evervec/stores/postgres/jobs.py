"""Jobs whose leases may be in the rows of their claims, and lists that no index covers."""

from __future__ import annotations

from evervec.model.jobs import Job, Status
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import jobs
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.jobs import JobList, JobStats

_RECENTLY = 3600.0
"""the pace is computed from jobs done within this many seconds, if there are any"""
_CLAIMED = "j.job_id = any (array(select unnest(written || job_ids) from evervec.claims))"


class Jobs(jobs.Jobs):
    """The part of the store that reads and manages jobs."""

    def _job_list(self, status: Status | None, id: str | None, *, in_order: bool) -> JobList:
        """With a redundant condition for a status, so that an index without the status is used."""
        listed = super()._job_list(status, id, in_order=in_order)
        written = self.engine.select_written
        if status is Status.PENDING:
            ready = listed._replace(select=written + SQL.among_ready, owner="q.tenant")
            order = "q.later, q.tenant, q.rank, q.scheduled_for, q.job_id"
            return ready._replace(order=order) if in_order else ready
        if status is Status.PROCESSING:
            return listed._replace(conditions=(_CLAIMED,))
        if status is Status.FAILED:
            return listed._replace(select=written, conditions=("j.failed_at is not null",))
        return listed if status is None else listed._replace(select=written)

    def failed_count(self) -> int:
        (count,) = self.read_one(SQL.failed_count)
        return int(count)

    def _job_stats(self, conn: Connection, tenant: str | None) -> JobStats:
        values = (tenant, self.engine.moment(conn) - _RECENTLY)
        return JobStats._make(conn.execute(SQL.job_stats, values).fetchone())

    def _locked(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        conn.execute(SQL.lock_job, (job_id,))
        conn.execute(SQL.lock_place, (job_id,))
        return super()._locked(conn, tenant, job_id)

    def purge_history(self, before: float, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            gone: int = conn.execute(SQL.purge_attempts, (before, limit)).rowcount
            found = [record for (record,) in conn.execute(SQL.forgotten, (before, limit))]
            if found:  # a job may have been added just before the lock, but not after it
                records = [record for (record,) in conn.execute(SQL.still_without_job, (found,))]
                for (table,) in conn.execute(SQL.points_tables).fetchall():
                    conn.execute(f"delete from evervec.{table} where record = any ($1)", (records,))
                conn.execute(SQL.forget_removals, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone
