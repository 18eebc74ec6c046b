"""Jobs as operators and callers see them: lists, counts, tickets, retry, cancel, pause, purge."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from evervec.errors import InvalidArgument, InvalidTransition
from evervec.model.basics import as_datetime, moment
from evervec.model.jobs import Attempt, Job, Outcome, Status, Ticket
from evervec.model.reports import Stats
from evervec.queue.transitions import CANCELLED, RETRIED
from evervec.stores.base.jobs import MOST_COUNTED, Backlog
from evervec.stores.notes import JOBLESS
from evervec.stores.sql.engine import Connection, Engine, Part
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.retries import retried
from evervec.stores.sql.tenants import Tenants
from evervec.stores.sql.tickets import TicketState, end_of

EVERYONE = ""
"""The entry in the paused tenants that means all tenants; no tenant has this name."""

_FIRST = (float("-inf"), 0)
"""before every tombstone, in the order of their times and numbers"""
_SLICES = 10
"""slices of tombstones that one purge reads if nothing in them may be purged"""

JOB_ORDER = {
    None: "j.job_id",
    Status.PENDING: "j.tenant, j.priority desc, j.scheduled_for, j.job_id",
    Status.PROCESSING: "j.lease_expires_at",
    Status.DONE: "j.completed_at desc",
    Status.FAILED: "j.completed_at desc",
}
"""The order in which jobs of a status are listed."""


class JobStats(NamedTuple):
    """Counts and times of the jobs table."""

    pending: int
    processing: int
    done: int
    failed: int
    records: int
    """records with a pending or processing job"""
    oldest: float | None
    """when the oldest pending job was due"""
    last_done: float | None
    pace: float | None
    """the mean seconds that recent jobs took"""


class JobList(NamedTuple):
    """How jobs of a status are read, so that an index is used."""

    select: str
    order: str
    owner: str = "r.tenant"
    """the column that is compared with the tenant"""
    conditions: tuple[str, ...] = ()


class Jobs(Part):
    """The part of the store that reads and manages jobs."""

    finds_latest_done = True
    """done jobs can be read by the time of their end, without reading all"""

    def __init__(self, engine: Engine, tenants: Tenants, writer: JobWriter) -> None:
        super().__init__(engine)
        self._tenants = tenants
        self._writer = writer
        self._passed: tuple[float, int] = _FIRST
        """the tombstone up to which the last purge came"""

    # reading
    def get(self, tenant: str | None, job_id: int) -> Job | None:
        with self.db.reading() as conn:
            return self._get(conn, tenant, job_id)

    def _get(self, conn: Connection, tenant: str | None, job_id: int) -> Job | None:
        query = self.engine.select_jobs + self.sql.job_by_id
        found = self.engine.jobs_of(conn, conn.execute(query, (job_id, tenant)).fetchall())
        return found[0] if found else None

    def page(
        self,
        tenant: str | None,
        *,
        status: Status | None = None,
        kind: str | None = None,
        id: str | None = None,
        after: int | None = None,
        limit: int = 100,
    ) -> list[Job]:
        status = None if status is None else Status(status)
        select, order, owner, conditions = self.job_list(status, id, in_order=after is None)
        wanted = {f"{owner} =": tenant, "r.kind =": kind, "r.id =": id, "j.job_id >": after}
        given = {test: value for test, value in wanted.items() if value is not None}
        tests = [f"{test} ${place}" for place, test in enumerate(given, 2)]
        if status is not None:  # a literal: partial indexes do not match a parameter
            tests.append(f"j.status = '{status.value}'")
        where = " and ".join((*tests, *conditions)) or "true"
        query = self.engine.dialect(f"{select} where {where} order by {order} limit $1")
        with self.db.reading() as conn:
            rows = conn.execute(query, (limit, *given.values())).fetchall()
            return self.engine.jobs_of(conn, rows)

    def job_list(self, status: Status | None, id: str | None, *, in_order: bool) -> JobList:
        """How to list jobs of a status, or of the record with an id; `in_order`: in the order of
        the status, else by number."""
        return JobList(self.engine.select_jobs, JOB_ORDER[status if in_order else None])

    def history(self, tenant: str, kind: str, id: str, limit: int) -> list[Attempt]:
        rows = self.read(self.sql.history, tenant, kind, id, limit)
        return list(map(_attempt, reversed(rows)))

    def way(self, job: Job, most: int) -> tuple[float, list[Attempt]]:
        with self.db.snapshot() as conn:
            (saved,) = conn.execute(self.sql.job_saved, (job.job_id,)).fetchone() or (None,)
            since = job.created_at.timestamp() if saved is None else saved
            asked = (job.record, job.version, since, most)
            rows = conn.execute(self.sql.latest_attempts, asked).fetchall()
        return since, [_attempt(row) for row in reversed(rows)]

    def stats(self, tenant: str | None) -> Stats:
        with self.db.snapshot() as conn:
            jobs = self._job_stats(conn, tenant)
            paused = self._pauses(conn)
        waited = None if jobs.oldest is None else max(0.0, self.engine.now() - jobs.oldest)
        return Stats(
            pending=jobs.pending,
            processing=jobs.processing,
            done=jobs.done,
            failed=jobs.failed,
            in_flight=0,
            unique_records=jobs.records,
            oldest_pending_seconds=waited,
            average_processing_ms=None if jobs.pace is None else jobs.pace * 1000,
            last_processed_at=as_datetime(jobs.last_done),
            paused=not {EVERYONE, tenant}.isdisjoint(paused),
            paused_tenants=sorted(paused & {tenant} if tenant else paused - {EVERYONE}),
        )

    def _job_stats(self, conn: Connection, tenant: str | None) -> JobStats:
        def one(query: str, *values: Any) -> Any:
            return conn.execute(query, values).fetchone()[0]

        counts = [one(self.sql.count_status, status.value, tenant) for status in Status]
        sql = self.sql
        others = (sql.unique_records, sql.oldest_pending, sql.last_done, sql.recent_pace)
        return JobStats(*counts, *(one(query, tenant) for query in others))

    def backlog(self, tenant: str | None) -> Backlog:
        with self.db.reading() as conn:
            counts = [
                conn.execute(self.sql.count_upto, (status.value, tenant, MOST_COUNTED)).fetchone()
                for status in (Status.PENDING, Status.PROCESSING, Status.FAILED)
            ]
        return Backlog(*(count for (count,) in counts))

    def open_jobs(self, version: int) -> int:
        (count,) = self.read_one(self.sql.open_jobs, version, MOST_COUNTED)
        return int(count)

    def fold_counts(self, limit: int = 10_000) -> int:
        return 0

    def failed_count(self) -> int:
        (count,) = self.read_one(self.sql.count_status, Status.FAILED.value, None)
        return int(count)

    def waiting_since(self, above: int) -> float | None:
        (since,) = self.read_one(self.sql.waiting_since, above)
        return None if since is None else float(since)

    # tickets
    def settled(self, asked: Sequence[tuple[str, Ticket]]) -> list[Status | None]:
        found = self._standings(asked)
        return [
            end_of(ticket, found.get((tenant, ticket.kind, ticket.id))) for tenant, ticket in asked
        ]

    def is_saved(self, tenant: str, ticket: Ticket) -> bool:
        found = self._standings([(tenant, ticket)])
        row = found.get((tenant, ticket.kind, ticket.id))
        return row is not None and row.has(ticket)

    def serving_job(self, tenant: str, kind: str, id: str) -> Job | None:
        found = self.read(self.sql.serving_job, tenant, kind, id)
        return next((self.get(tenant, job_id) for (job_id,) in found), None)

    def _standings(
        self, asked: Sequence[tuple[str, Ticket]]
    ) -> dict[tuple[str, str, str], TicketState]:
        """The state of each ticket's record in the serving version."""
        keys = sorted({(tenant, ticket.kind, ticket.id) for tenant, ticket in asked})
        if not keys:
            return {}
        rows = self.read(self.sql.settled, *self.engine.keyed(keys))
        return {(tenant, kind, id): TicketState._make(rest) for tenant, kind, id, *rest in rows}

    # management
    def retry(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._locked(conn, tenant, job_id)
            if job.status not in RETRIED:
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a failed job can be retried"
                )
            conn.execute(self.sql.retry_one, (self.engine.moment(conn), job_id))
        self.engine.wake()

    @retried
    def retry_failed(self, tenant: str | None, max_retries: int | None = None) -> int:
        with self.db.writing(durable=True) as conn:
            changed: int = conn.execute(
                self.sql.retry_failed, (self.engine.moment(conn), tenant, max_retries)
            ).rowcount
        self.engine.wake()
        return changed

    def cancel(self, tenant: str | None, job_id: int) -> None:
        with self.db.writing(durable=True) as conn:
            job = self._locked(conn, tenant, job_id)
            if job.status not in CANCELLED:
                raise InvalidTransition(
                    f"job {job_id} is {job.status}; only a pending or failed job can be "
                    "cancelled: delete its record instead"
                )
            conn.execute(self.sql.drop_job, (job_id,))
            self.forsake(conn, [job.record])

    def set_priority(self, tenant: str | None, job_id: int, priority: int) -> None:
        with self.db.writing(durable=True) as conn:
            self._locked(conn, tenant, job_id)
            conn.execute(self.sql.set_priority, (priority, job_id))

    def _locked(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        """A job that is about to be changed: until the transaction ends, no other changes it."""
        if (job := self._get(conn, tenant, job_id)) is None:
            raise InvalidArgument(f"job {job_id} does not exist")
        return job

    def locked_jobs(self, conn: Connection, job_ids: Sequence[int]) -> list[Job]:
        """Jobs that are about to be changed, as `_locked`; those that are gone are left out."""
        query = self.engine.select_jobs + self.sql.jobs_by_id
        rows = conn.execute(query, (self.engine.listed(job_ids),)).fetchall()
        return self.engine.jobs_of(conn, rows)

    def paused(self, tenant: str | None = None) -> bool:
        with self.db.reading() as conn:
            return not {EVERYONE, tenant}.isdisjoint(self._pauses(conn))

    def paused_tenants(self) -> frozenset[str]:
        with self.db.reading() as conn:
            return self._pauses(conn)

    def set_paused(self, paused: bool, tenant: str | None = None) -> None:
        query = self.sql.pause if paused else self.sql.resume
        self.write(query, EVERYONE if tenant is None else tenant, durable=True)
        self.engine.wake()

    def _pauses(self, conn: Connection) -> frozenset[str]:
        """The tenants whose jobs are not claimed."""
        return frozenset(tenant for (tenant,) in conn.execute(self.sql.pauses).fetchall())

    # purging
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
            records = [record for (record,) in conn.execute(self.sql.purge_jobs, which).fetchall()]
            if records and status is Status.FAILED:
                self._note_jobless(conn, records)
        return len(records)

    def purge_orphans(self, limit: int = 1000) -> int:
        if not self.read(self.sql.orphans, 1):
            return 0
        self._writer.pass_all_boxes_on()
        with self.db.writing(durable=False) as conn:
            orphans = [job_id for (job_id,) in conn.execute(self.sql.orphans, (limit,)).fetchall()]
            dropped = conn.execute(self.sql.drop_jobs, (self.engine.listed(orphans),)).fetchall()
            if dropped:
                self._note_jobless(conn, [record for (record,) in dropped])
        return len(dropped)

    def forsake(self, conn: Connection, records: Sequence[int]) -> None:
        """Mark records as deleted that lost their job before they appeared."""
        with self._tenants.counting_records(conn, records):
            conn.execute(self.sql.forsake, (self.engine.listed(records),))

    def _note_jobless(self, conn: Connection, records: Sequence[int]) -> None:
        """Handle records whose jobs were purged, not cancelled: a note makes the next worker that
        starts look for those that appeared."""
        self.forsake(conn, records)
        first, noted = min(records), False
        while not noted:  # another transaction may write the same note
            row = conn.execute(self.sql.note, (JOBLESS.name,)).fetchone()
            if row is None:
                new = (JOBLESS.name, JOBLESS.write(first), secrets.randbits(62))
                noted = conn.execute(self.sql.add_note, new).rowcount == 1
            else:
                value, revision = row
                least = JOBLESS.write(min(first, JOBLESS.parse(value)))
                noted = (
                    conn.execute(self.sql.set_note, (least, JOBLESS.name, revision)).rowcount == 1
                )

    def purge_ended(self, before: float, limit: int = 1000) -> tuple[int, int]:
        with self.db.writing(durable=False) as conn:
            which = (Status.DONE.value, before, None, False, limit)
            jobs = len(conn.execute(self.sql.purge_jobs, which).fetchall())
            attempts = conn.execute(self.sql.purge_attempts, (before, limit)).rowcount
        return jobs, attempts

    def purge_history(self, before: float, limit: int = 1000) -> int:
        gone = 0
        with self.db.writing(durable=False) as conn:
            removals = conn.execute(self.sql.purge_removed, (before, limit)).fetchall()
            if removals:
                conn.execute(self.sql.removals_purged, max(removals))
                gone += len(removals)
            if records := self._forgotten(conn, before, limit):
                listed = (self.engine.listed(records),)
                conn.execute(self.sql.forget_points, listed)
                with self._tenants.counting_chunks(conn, records):
                    conn.execute(self.sql.forget_ledger, listed)
                gone += conn.execute(self.sql.forget_records, listed).rowcount
        return gone

    def _forgotten(self, conn: Connection, before: float, limit: int) -> list[int]:
        """At most `limit` deleted records that may be purged. Tombstones that are kept for a
        followed stream may be many: each call continues where the last one stopped, so that no
        sweep reads all of them."""
        for _ in range(_SLICES):
            found = conn.execute(self.sql.tombstones, (before, *self._passed, limit)).fetchall()
            self._passed = tuple(found[-1]) if len(found) == limit else _FIRST
            listed = self.engine.listed(record for _, record in found)
            rows = conn.execute(self.sql.forgotten, (listed, before)).fetchall()
            if records := [record for (record,) in rows]:
                return records
            if len(found) < limit:
                break
        return []


def _attempt(row: Sequence[Any]) -> Attempt:
    (
        attempt, seq, worker, started, finished, outcome, error, embedded, reused, tokens,
        embedded_at, version,
    ) = row  # fmt: skip
    return Attempt(
        attempt, seq, worker, as_datetime(started), moment(finished), Outcome(outcome), error,
        embedded, reused, tokens, as_datetime(embedded_at), version or "",
    )  # fmt: skip
