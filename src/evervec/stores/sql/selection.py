"""Jobs that fit a filter: found in windows of bounded size, and changed together.

A window is read through an index: the jobs of one status in the order in which that status is listed,
or the jobs with the greatest numbers. The filter is applied to what the window holds, so that no filter
makes a query walk a large table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from evervec.model.job_filters import SEARCHED, JobFilter
from evervec.model.jobs import Job, Status
from evervec.queue.transitions import CANCELLED
from evervec.stores.sql.engine import Connection, Engine, Part
from evervec.stores.sql.job_rows import JobRow, number_of
from evervec.stores.sql.jobs import Jobs
from evervec.stores.sql.retries import retried

_AT_ONCE = 500
"""jobs that one transaction changes"""
_SINCE = (
    "case w.status when 'pending' then w.scheduled_for when 'processing' then w.started_at "
    "else w.completed_at end"
)
"""since when a job has its status"""


class _Window(NamedTuple):
    """The jobs that are searched."""

    select: str
    order: str
    conditions: list[tuple[str, Any]]
    """each with its parameter, `$` in its place; a condition without `$` has none"""


class Selection(Part):
    """The part of the store that finds and changes jobs by a filter."""

    def __init__(self, engine: Engine, jobs: Jobs) -> None:
        super().__init__(engine)
        self._jobs = jobs

    def find(
        self, tenant: str | None, wanted: JobFilter | None, before: int | None, limit: int
    ) -> list[Job]:
        if wanted is None:
            return []
        found: dict[int, JobRow] = {}
        with self.db.reading() as conn:
            for status in wanted.statuses:
                for window in self._windows(conn, status, tenant, wanted, before):
                    query, values = self._query(window, status, tenant, wanted, before, limit)
                    found |= {number_of(row): row for row in conn.execute(query, values).fetchall()}
            newest = sorted(found, reverse=True)[:limit]
            return self.engine.jobs_of(conn, [found[job_id] for job_id in newest])

    def _windows(
        self,
        conn: Connection,
        status: Status,
        tenant: str | None,
        wanted: JobFilter,
        before: int | None,
    ) -> Iterator[_Window]:
        listed = self._jobs.job_list(status, None, in_order=True)
        if status is not Status.DONE:
            conditions: list[tuple[str, Any]] = [(test, None) for test in listed.conditions]
            conditions.append((f"j.status = '{status.value}'", None))
            if tenant is not None:
                conditions.append((f"{listed.owner} = $", tenant))
            for fingerprint in wanted.fingerprints:
                if fingerprint is None:
                    yield _Window(listed.select, listed.order, conditions)
                    continue
                order = "j.fingerprint desc, j.tenant desc, j.job_id desc"  # that of its index
                alike = [*conditions, ("j.fingerprint = $", fingerprint)]
                yield _Window(listed.select, order, alike)
            return
        below = [] if before is None else [("j.job_id < $", before)]
        yield _Window(listed.select, "j.job_id desc", below)
        if self._jobs.finds_latest_done:  # the newest jobs may all be waiting
            yield _Window(listed.select, listed.order, [("j.status = 'done'", None)])
        if tenant is not None:  # whose jobs may be far from the newest of all
            first = (wanted.kind or "", (wanted.kind and wanted.prefix) or "")
            asked = (tenant, *first, SEARCHED)
            rows = conn.execute(self.sql.first_records, asked).fetchall()
            records = self.engine.listed(record for (record,) in rows)
            yield _Window(listed.select, "j.job_id desc", [("j.record in list($)", records)])

    def _query(
        self,
        window: _Window,
        status: Status,
        tenant: str | None,
        wanted: JobFilter,
        before: int | None,
        limit: int,
    ) -> tuple[str, tuple[Any, ...]]:
        values: list[Any] = [limit]

        def test(condition: str, value: Any) -> str:
            if "$" not in condition:
                return condition
            values.append(value)
            return condition.replace("$", f"${len(values)}")

        inner = " and ".join(test(*each) for each in window.conditions) or "true"
        now = self.engine.now()
        outer = [f"w.status = '{status.value}'"]
        for condition, value in (
            ("w.tenant = $", tenant),
            ("w.kind = $", wanted.kind),
            ("strpos(lower(w.error), lower($)) > 0", wanted.error),
            ("w.worker = $", wanted.worker),
            ("w.job_id < $", before),
            (f"{_SINCE} <= $", _ago(now, wanted.older_than)),
            (f"{_SINCE} >= $", _ago(now, wanted.newer_than)),
        ):
            if value is not None:
                outer.append(test(condition, value))
        if wanted.prefix is not None:
            length = test("substr(w.id, 1, $::integer)", len(wanted.prefix))
            outer.append(f"{length} = {test('$', wanted.prefix)}")
        query = (
            f"select * from ({window.select} where {inner} order by {window.order} "
            f"limit {SEARCHED}) as w where {' and '.join(outer)} order by w.job_id desc limit $1"
        )
        return self.engine.dialect(query), tuple(values)

    # changes
    def retry(
        self, tenant: str | None, wanted: JobFilter | None, most: int, *, dry_run: bool
    ) -> int:
        def change(conn: Connection, jobs: Sequence[Job]) -> int:
            ids = self.engine.listed(job.job_id for job in jobs if job.status is Status.FAILED)
            moment = self.engine.moment(conn)
            return int(conn.execute(self.sql.retry_many, (moment, ids)).rowcount)

        return self._change(tenant, wanted, most, dry_run, change)

    def cancel(
        self, tenant: str | None, wanted: JobFilter | None, most: int, *, dry_run: bool
    ) -> int:
        def change(conn: Connection, jobs: Sequence[Job]) -> int:
            ids = self.engine.listed(job.job_id for job in jobs if job.status in CANCELLED)
            records = [record for (record,) in conn.execute(self.sql.drop_jobs, (ids,)).fetchall()]
            if records:
                self._jobs.forsake(conn, records)
            return len(records)

        return self._change(tenant, wanted, most, dry_run, change)

    def set_priority(
        self,
        tenant: str | None,
        wanted: JobFilter | None,
        priority: int,
        most: int,
        *,
        dry_run: bool,
    ) -> int:
        def change(conn: Connection, jobs: Sequence[Job]) -> int:
            ids = self.engine.listed(job.job_id for job in jobs if job.status is Status.PENDING)
            return int(conn.execute(self.sql.set_priorities, (priority, ids)).rowcount)

        return self._change(tenant, wanted, most, dry_run, change)

    def _change(
        self,
        tenant: str | None,
        wanted: JobFilter | None,
        most: int,
        dry_run: bool,
        change: Callable[[Connection, Sequence[Job]], int],
    ) -> int:
        """Change the jobs that fit now, some hundred in each transaction; what became of a job
        since it was found is read again under its lock."""
        ids = [job.job_id for job in self.find(tenant, wanted, None, most)]
        if dry_run:
            return len(ids)
        ids.sort()
        count = 0
        for start in range(0, len(ids), _AT_ONCE):
            count += self._change_some(change, ids[start : start + _AT_ONCE])
        self.engine.wake()
        return count

    @retried
    def _change_some(
        self, change: Callable[[Connection, Sequence[Job]], int], ids: Sequence[int]
    ) -> int:
        with self.db.writing(durable=True) as conn:
            return change(conn, self._jobs.locked_jobs(conn, ids))


def _ago(now: float, seconds: Any) -> float | None:
    return None if seconds is None else now - seconds
