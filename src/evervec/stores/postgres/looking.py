"""Reading jobs by status, which no index covers."""

from __future__ import annotations

from typing import ClassVar

from evervec.model.jobs import Status
from evervec.stores.postgres.engine import SQL, Engine
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.listing import Listing
from evervec.stores.sql.looking import JOB_ORDER, JobStats

_RECENTLY = 3600.0
"""the pace is computed from jobs done within this many seconds, if there are any"""


class Looking(Engine, Listing):
    """The part of the store that reads jobs and statistics."""

    job_order: ClassVar = {
        **JOB_ORDER, Status.PENDING: "q.later, q.tenant, q.rank, q.scheduled_for, q.job_id"
    }  # fmt: skip
    of_status: ClassVar = {
        Status.PENDING: " and ($1::text is null or q.tenant = $1)",
        Status.PROCESSING: """
            and j.job_id = any (array(select unnest(written || job_ids) from evervec.claims))""",
        Status.FAILED: " and j.failed_at is not null",
    }

    def select_of(self, status: Status | None) -> str:
        if status in (None, Status.PROCESSING):
            return self.select_jobs
        return self.select_written + (SQL.among_ready if status is Status.PENDING else "")

    def failed_count(self) -> int:
        with self.db.reading() as conn:
            count: int = conn.execute(SQL.failed_count).fetchone()[0]
        return count

    def _job_stats(self, conn: Connection, tenant: str | None) -> JobStats:
        values = (tenant, self.moment(conn) - _RECENTLY)
        return JobStats._make(conn.execute(SQL.job_stats, values).fetchone())
