"""Reading records, jobs, history and counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from evervec.model import Attempt, Job, Outcome, Record, Status, Ticket, as_datetime
from evervec.reports import Stats
from evervec.stores.sql.engine import EVERYONE, Connection, Engine
from evervec.stores.values import Holding


class JobStats(NamedTuple):
    """What the jobs table says at a glance."""

    pending: int
    processing: int
    done: int
    failed: int
    records: int
    """that wait or are being processed"""
    oldest: float | None
    """when the first that waits was due"""
    last_done: float | None
    pace: float | None
    """the seconds that a job took of late"""


class Looking(Engine):
    """The part of the store that answers questions. Lists of records and jobs are each
    engine's own."""

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
        ids = self.listed({ticket.job_id for _, ticket in asked})
        with self.db.snapshot() as conn:
            found = {row[:2]: row[2:] for row in conn.execute(self.sql.settled, (ids,)).fetchall()}
            ends: list[Status | None] = []
            for tenant, ticket in asked:
                status, finished = found.get((ticket.job_id, tenant), (None, None))
                if status is None:  # purged when done, or cancelled
                    key = (tenant, ticket.kind, ticket.id, ticket.seq)
                    cancelled = conn.execute(self.sql.never_embedded, key).fetchone()
                    ends.append(Status.FAILED if cancelled else Status.DONE)
                elif finished is not None and finished >= ticket.seq:
                    ends.append(Status.DONE)
                else:
                    ends.append(Status.FAILED if status == Status.FAILED else None)
        return ends


JOB_ORDER = {
    None: "j.job_id",
    Status.PENDING: "j.priority desc, j.scheduled_for, j.job_id",
    Status.PROCESSING: "j.lease_expires_at",
    Status.DONE: "j.completed_at desc",
    Status.FAILED: "j.completed_at desc",
}
"""How jobs of a status are listed."""


def make_record(row: tuple[Any, ...]) -> Record:
    tenant, kind, id, seq, title, text, metadata, weight, created, updated, embedded = row
    return Record(
        tenant, kind, id, seq, title, text, json.loads(metadata), weight,
        as_datetime(created), as_datetime(updated), bool(embedded),  # type: ignore[arg-type]
    )  # fmt: skip
