"""Loading, renewing and releasing. Each engine has its own claim."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from evervec.model.jobs import Job
from evervec.stores.sql.batches import retried
from evervec.stores.sql.changes import Values
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.finishing import Finishing
from evervec.stores.sql.jobs import loaded
from evervec.stores.values import Loaded, Unreadable


class Leases(Finishing):
    """The part of the store that workers use."""

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.load, ([job.job_id for job in jobs], budget)).fetchall()
        return [None if row[2] is None else loaded(row) for row in rows]

    @retried
    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        clean = None if error is None else error.replace("\0", " ")
        with self.db.writing(durable=False) as conn:
            self.write_leases(conn, jobs)
            rows = conn.execute(self.sql.release, (clean, due, *held_rows(jobs)))
            done = {row[0] for row in rows}
        self.wake()
        return [job.job_id in done for job in jobs]

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        self.write_leases(conn, jobs)
        return {row[0] for row in conn.execute(self.sql.renew, (lease, *held_rows(jobs)))}

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        which = None if versions is None else list(versions)
        with self.db.reading() as conn:
            moments = [conn.execute(self.sql.next_scheduled, (which,)).fetchone()[0]]
            moments.append(conn.execute(self.sql.next_expiry, (0.0,)).fetchone()[0])
        return min((m for m in moments if m is not None), default=None)

    @retried
    def join_version(self, version: int, limit: int = 1000) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            which = (version, limit)
            records = [row[0] for row in conn.execute(self.sql.to_appear, which)]
            self.lock_records(conn, records)
            # read again: some may have changed before they were locked
            found = [row for row in conn.execute(self.sql.to_appear, which) if row[0] in records]
            numbers = self.take_numbers(conn, len(found)) if found else iter(())
            jobs: dict[str, list[Values]] = defaultdict(list)
            for record, tenant, *what in found:
                op, priority, due, seq, attempts, box = what
                jobs[tenant].append(
                    (next(numbers), record, version, op, priority, due, seq, attempts, box, None,
                     None)
                )  # fmt: skip
            for tenant, group in jobs.items():
                self._write_jobs(conn, tenant, now, group)
        self.wake()
        return len(records)


def held_rows(jobs: Sequence[Job]) -> tuple[list[int], list[str | None]]:
    ordered = sorted(jobs, key=lambda job: job.job_id)
    return [job.job_id for job in ordered], [job.token for job in ordered]
