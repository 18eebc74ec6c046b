"""Reading records, jobs, history and counts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from evervec.filters import parse_filter
from evervec.model import Attempt, Job, Outcome, Record, Stats, Status, Ticket, as_datetime
from evervec.stores.sqlite.engine import SQL, Engine, jobs_of
from evervec.stores.sqlite.filtering import filter_sql
from evervec.stores.sqlite.leases import SELECT_JOBS

_SELECT_RECORDS = f"select {SQL.record_columns}\n"


class Looking(Engine):
    """The part of the store that answers questions."""

    def get(self, tenant: str, kind: str, id: str) -> Record | None:
        with self.db.reading() as conn:
            row = conn.execute(_SELECT_RECORDS + SQL.record, (tenant, kind, id)).fetchone()
        return _record(row) if row else None

    def records(
        self,
        tenant: str,
        *,
        kind: str | None = None,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        clauses, values = ["r.tenant = ? and r.state = 'live'"], [tenant]
        if kind is not None:
            clauses.append("r.kind = ?")
            values.append(kind)
        if after is not None:
            clauses.append("(r.kind, r.id) > (?, ?)")
            values += after
        conditions, needed = filter_sql(parse_filter(filter))
        inner = f"{_SELECT_RECORDS} where {' and '.join(clauses)}{conditions}"
        query = f"select * from ({inner}) where ? is null or embedded = ? order by kind, id limit ?"
        with self.db.reading() as conn:
            rows = conn.execute(query, [*values, *needed, embedded, embedded, limit]).fetchall()
        return [_record(row) for row in rows]

    def job(self, tenant: str | None, job_id: int) -> Job | None:
        with self.db.reading() as conn:
            rows = conn.execute(SELECT_JOBS + SQL.job_by_id, (job_id, tenant)).fetchall()
            found = jobs_of(conn, rows)
        return found[0] if found else None

    def jobs(
        self,
        tenant: str | None,
        *,
        status: Status | None = None,
        kind: str | None = None,
        id: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        wanted = {"r.tenant": tenant, "r.kind": kind, "r.id": id}
        clauses = [f"{column} = ?" for column, value in wanted.items() if value is not None]
        values: list[Any] = [value for value in wanted.values() if value is not None]
        if status is not None:  # as a literal: the index of a status serves no parameter
            clauses.append(f"j.status = '{Status(status).value}'")
        # with an id, begin at the record; else at the jobs of that status
        columns = SELECT_JOBS.replace("cross join", "join") if id is not None else SELECT_JOBS
        query = f"{columns} where {' and '.join(clauses) or '1'} order by {_ORDER[status]} limit ?"
        with self.db.reading() as conn:
            return jobs_of(conn, conn.execute(query, [*values, limit]).fetchall())

    def history(self, tenant: str, kind: str, id: str) -> list[Attempt]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.history, (tenant, kind, id)).fetchall()
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

            counts = {status: one(SQL.count_status, status.value, tenant) for status in Status}
            oldest = one(SQL.oldest_pending, tenant)
            pace = one(SQL.recent_pace, tenant)
            return Stats(
                pending=counts[Status.PENDING],
                processing=counts[Status.PROCESSING],
                done=counts[Status.DONE],
                failed=counts[Status.FAILED],
                in_flight=0,
                unique_records=one(SQL.unique_records, tenant),
                oldest_pending_seconds=None if oldest is None else max(0.0, self.now() - oldest),
                average_processing_ms=None if pace is None else pace * 1000,
                last_processed_at=as_datetime(one(SQL.last_done, tenant)),
                paused=bool(one(SQL.paused)),
            )

    def failed_count(self) -> int:
        with self.db.reading() as conn:
            count: int = conn.execute(SQL.count_status, (Status.FAILED.value, None)).fetchone()[0]
        return count

    def settled(self, tenant: str, ticket: Ticket) -> Status | None:
        with self.db.snapshot() as conn:
            row = conn.execute(SQL.settled, (ticket.job_id, tenant)).fetchone()
            if row is None:  # purged when done, or cancelled
                key = (tenant, ticket.kind, ticket.id, ticket.seq)
                cancelled = conn.execute(SQL.never_embedded, key).fetchone()
                return Status.FAILED if cancelled else Status.DONE
        status, finished = row
        if finished is not None and finished >= ticket.seq:
            return Status.DONE
        return Status.FAILED if status == Status.FAILED else None


_ORDER = {
    None: "j.job_id",
    Status.PENDING: "j.priority desc, j.scheduled_for, j.job_id",
    Status.PROCESSING: "j.lease_expires_at",
    Status.DONE: "j.completed_at desc",
    Status.FAILED: "j.completed_at desc",
}


def _record(row: tuple[Any, ...]) -> Record:
    tenant, kind, id, seq, title, text, metadata, weight, created, updated, embedded = row
    return Record(
        tenant, kind, id, seq, title, text, json.loads(metadata), weight,
        as_datetime(created), as_datetime(updated), bool(embedded),  # type: ignore[arg-type]
    )  # fmt: skip
