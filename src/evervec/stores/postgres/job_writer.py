"""Writes jobs while other processes do the same."""

from __future__ import annotations

from collections.abc import Sequence

from evervec.stores.sql import job_writer
from evervec.stores.sql.engine import Connection


class JobWriter(job_writer.JobWriter):
    """Writes the rows of jobs."""

    def targets(self, db: Connection, kind: str) -> list[int]:
        targets = self.versions_of(db, kind)
        if targets:
            return targets
        with self.db.aside() as aside:
            while not targets:
                aside.execute(self.sql.add_version, (kind,))
                targets = self.versions_of(aside, kind)
        return targets

    def lock_records(self, conn: Connection, records: Sequence[int]) -> None:
        conn.execute(self.sql.lock_revealed, (list(records),))
