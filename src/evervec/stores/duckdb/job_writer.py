"""Writes jobs under the writers' lock."""

from __future__ import annotations

from evervec.stores.sql import job_writer
from evervec.stores.sql.engine import Connection, columns
from evervec.stores.sql.job_rows import JobValues


class JobWriter(job_writer.JobWriter):
    """Writes the rows of jobs."""

    def targets(self, db: Connection, kind: str) -> list[int]:
        with self.db.reading() as conn:  # not the older snapshot of the caller's transaction
            targets = self.versions_of(conn, kind)
            if not targets:
                targets = [self.engine.fresh_number(conn)]
                new = [*targets, kind, self.engine.now()]
                self.db.file.aside(self.sql.add_version, new)
        return targets

    def write_jobs(self, db: Connection, tenant: str, now: float, jobs: list[JobValues]) -> None:
        # a record that is new in this batch has no jobs yet
        if known := [job for job in jobs if job.record != job.seq]:
            replaced = set(db.execute(self.sql.replace_jobs, columns(known)).fetchall())
            jobs = [job for job in jobs if (job.record, job.version) not in replaced]
        if jobs:
            db.execute(self.sql.insert_jobs, (tenant, now, *columns(jobs)))
