"""Reading records, jobs, history and counts."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

from evervec.model.basics import as_datetime
from evervec.model.jobs import Attempt, Job, Outcome, Status, Ticket
from evervec.model.records import Record
from evervec.model.reports import Stats
from evervec.stores.sql.engine import EVERYONE, Connection, Engine
from evervec.stores.values import Holding


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


class Looking(Engine):
    """The part of the store that reads records, jobs and counts. Each engine implements the lists
    of records and jobs itself."""

    @property
    def select_records(self) -> str:
        return f"select {self.sql.record_columns}\n"

    def get(self, tenant: str, kind: str, id: str) -> Record | None:
        with self.db.reading() as conn:
            row = conn.execute(self.select_records + self.sql.record, (tenant, kind, id)).fetchone()
        return make_record(row) if row else None

    def job(self, tenant: str | None, job_id: int) -> Job | None:
        with self.db.reading() as conn:
            rows = conn.execute(self.select_jobs + self.sql.job_by_id, (job_id, tenant)).fetchall()
            found = self.jobs_of(conn, rows)
        return found[0] if found else None

    def history(self, tenant: str, kind: str, id: str) -> list[Attempt]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.history, (tenant, kind, id)).fetchall()
        return [
            Attempt(
                attempt, seq, worker, as_datetime(started), as_datetime(finished),  # type: ignore[arg-type]
                Outcome(outcome), error, embedded, reused, tokens,
            )
            for attempt, seq, worker, started, finished, outcome, error, embedded, reused, tokens
            in rows
        ]  # fmt: skip

    def stats(self, tenant: str | None) -> Stats:
        with self.db.snapshot() as conn:
            jobs = self._job_stats(conn, tenant)
            paused = self.pauses(conn)
        waited = None if jobs.oldest is None else max(0.0, self.now() - jobs.oldest)
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

    def holdings(self, tenant: str) -> dict[tuple[str, str], Holding]:
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.holdings, (tenant,)).fetchall()
        return {(kind, name): Holding(items, last) for kind, name, items, last in rows}

    def failed_count(self) -> int:
        with self.db.reading() as conn:
            count: int = conn.execute(
                self.sql.count_status, (Status.FAILED.value, None)
            ).fetchone()[0]
        return count

    def waiting_since(self, above: int) -> float | None:
        with self.db.reading() as conn:
            since: float | None = conn.execute(self.sql.waiting_since, (above,)).fetchone()[0]
        return since

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
        with self.db.reading() as conn:
            row = conn.execute(self.sql.serving_job, (tenant, kind, id)).fetchone()
        return self.job(tenant, row[0]) if row else None

    def _standings(
        self, asked: Sequence[tuple[str, Ticket]]
    ) -> dict[tuple[str, str, str], _Standing]:
        """The state of each ticket's record in the serving version."""
        keys = sorted({(tenant, ticket.kind, ticket.id) for tenant, ticket in asked})
        if not keys:
            return {}
        with self.db.reading() as conn:
            rows = conn.execute(self.sql.settled, self.keyed(keys)).fetchall()
        return {row[:3]: _Standing._make(row[3:]) for row in rows}

    @abstractmethod
    def keyed(self, keys: Sequence[tuple[str, str, str]]) -> Sequence[Any]:
        """Record keys as parameters of a query."""


class _Standing(NamedTuple):
    """A record, its job and ledger entry of the serving version, and its outstanding jobs."""

    state: str
    seq: int
    born: int
    status: str | None
    finished_seq: int | None
    ledger_seq: int | None
    to_appear: int | None
    """the seq of a job, of any version, that opens a box or loads the record"""
    waits: bool
    """a job of any version is pending or processing"""

    def has(self, ticket: Ticket) -> bool:
        """Whether the ticket's change was committed: the record is at least as new, or a job will
        make it so. Other numbers prove nothing: a later job for an older text has a larger one."""
        return max(self.seq, self.to_appear or 0) >= ticket.seq


def end_of(ticket: Ticket, row: _Standing | None) -> Status | None:
    """How a ticket's change ended; None while it may still be done."""
    if not ticket.seq:  # nothing had to change
        return Status.DONE
    if row is None or not row.has(ticket):
        return None
    done = max(row.finished_seq or 0, row.ledger_seq or 0) >= ticket.seq
    if done and (row.seq >= ticket.seq or row.status == Status.DONE):
        return Status.DONE
    if row.status == Status.FAILED:
        return Status.FAILED
    if row.waits or row.status is not None:
        return None
    # There is no job: it was done and purged, or cancelled. A deleted record has a later seq than
    # it had when it appeared.
    deleted = row.state == "deleted" and row.seq != row.born
    return Status.DONE if deleted else Status.FAILED


JOB_ORDER = {
    None: "j.job_id",
    Status.PENDING: "j.tenant, j.priority desc, j.scheduled_for, j.job_id",
    Status.PROCESSING: "j.lease_expires_at",
    Status.DONE: "j.completed_at desc",
    Status.FAILED: "j.completed_at desc",
}
"""The order in which jobs of a status are listed."""


def make_record(row: tuple[Any, ...]) -> Record:
    tenant, kind, id, seq, title, text, metadata, weight, created, updated, embedded = row
    return Record(
        tenant, kind, id, seq, title, text, json.loads(metadata), weight,
        as_datetime(created), as_datetime(updated), bool(embedded),  # type: ignore[arg-type]
    )  # fmt: skip
