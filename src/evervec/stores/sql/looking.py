"""Reading records, jobs, history and counts."""

from __future__ import annotations

import json
from typing import Any

from evervec.model import Attempt, Job, Outcome, Record, Stats, Status, Ticket, as_datetime
from evervec.stores.sql.engine import Engine


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

            def one(query: str, *values: Any) -> Any:
                return conn.execute(query, values).fetchone()[0]

            counts = {status: one(self.sql.count_status, status.value, tenant) for status in Status}
            oldest = one(self.sql.oldest_pending, tenant)
            pace = one(self.sql.recent_pace, tenant)
            return Stats(
                pending=counts[Status.PENDING],
                processing=counts[Status.PROCESSING],
                done=counts[Status.DONE],
                failed=counts[Status.FAILED],
                in_flight=0,
                unique_records=one(self.sql.unique_records, tenant),
                oldest_pending_seconds=None if oldest is None else max(0.0, self.now() - oldest),
                average_processing_ms=None if pace is None else pace * 1000,
                last_processed_at=as_datetime(one(self.sql.last_done, tenant)),
                paused=bool(one(self.sql.paused)),
            )

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

    def settled(self, tenant: str, ticket: Ticket) -> Status | None:
        with self.db.snapshot() as conn:
            row = conn.execute(self.sql.settled, (ticket.job_id, tenant)).fetchone()
            if row is None:  # purged when done, or cancelled
                key = (tenant, ticket.kind, ticket.id, ticket.seq)
                cancelled = conn.execute(self.sql.never_embedded, key).fetchone()
                return Status.FAILED if cancelled else Status.DONE
        status, finished = row
        if finished is not None and finished >= ticket.seq:
            return Status.DONE
        return Status.FAILED if status == Status.FAILED else None


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
