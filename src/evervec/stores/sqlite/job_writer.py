"""Writes jobs under the write lock."""

from __future__ import annotations

from evervec.stores.sql import job_writer
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sqlite.engine import SQL


class JobWriter(job_writer.JobWriter):
    """Writes the rows of jobs."""

    def targets(self, db: Connection, kind: str) -> list[int]:
        targets = self.versions_of(db, kind)
        if not targets:
            targets = [self.engine.fresh_number(db)]
            db.execute(SQL.add_version, (*targets, kind, self.engine.now()))
        return targets

    def write_jobs(self, db: Connection, tenant: str, now: float, jobs: list[JobValues]) -> None:
        db.executemany(SQL.put_job, [(tenant, now, *job) for job in jobs])
