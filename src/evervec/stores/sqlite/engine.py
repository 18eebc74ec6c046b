"""What all parts of the SQLite store share: connections, queries, clock, counter."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from evervec.model import Job, Op, Status, as_datetime, quick_maker
from evervec.stores.named import Queries
from evervec.stores.sqlite.connections import Connections

SQL = Queries.read("evervec.stores.sqlite", "queries.sql")

JobRow = tuple[Any, ...]  # the columns of `job_columns` or `claim_columns`, in that order


class Engine:
    """The base of the store's parts."""

    def __init__(self, db: Connections, clock: Callable[[], float], max_attempts: int) -> None:
        self.db = db
        self._clock = clock
        self._max_attempts = max_attempts
        self._woken = threading.Condition()
        self._wakes = 0

    def now(self) -> float:
        return self._clock()

    def wake(self) -> None:
        with self._woken:
            self._wakes += 1
            self._woken.notify_all()

    def wait(self, seen: int, timeout: float) -> int:
        with self._woken:
            if self._wakes == seen and timeout > 0:
                self._woken.wait(timeout)
            return self._wakes

    def take_numbers(self, conn: sqlite3.Connection, count: int) -> int:
        """The first of `count` fresh numbers of the store's one counter."""
        last: int = conn.execute(SQL.take_numbers, (count,)).fetchone()[0]
        return last - count + 1


def listed(values: Iterable[object]) -> str:
    """Values as one parameter, for `in (select value from json_each(?))`."""
    return json.dumps(list(values), ensure_ascii=False)


_STATUS = {s.value: s for s in Status}
OPS = {o.value: o for o in Op}
_LEASED = Status.PROCESSING
_make_job = quick_maker(Job)


@lru_cache(maxsize=4096)
def _moment(seconds: float) -> datetime:
    """Jobs of one batch share their times."""
    return datetime.fromtimestamp(seconds, UTC)


class Lease(NamedTuple):
    """What a claim changes of each of its jobs."""

    token: str
    worker: str
    started_at: datetime | None
    expires_at: datetime | None


def version_names(conn: sqlite3.Connection) -> dict[int, str]:
    return dict(conn.execute(SQL.version_names).fetchall())


def jobs_of(conn: sqlite3.Connection, rows: Iterable[JobRow]) -> list[Job]:
    """Jobs from rows of `job_columns`."""
    names = version_names(conn)
    return [
        Job(
            job_id, tenant, kind, record_id, names[version], OPS[op], seq, claimed_seq,
            _STATUS[status], priority, attempts, max_attempts, error, token, _moment(created_at),
            _moment(scheduled_for), as_datetime(started_at), as_datetime(completed_at),
            as_datetime(expires_at), record, version, worker, crashes,
        )
        for (
            job_id, tenant, kind, record_id, version, op, seq, claimed_seq, status, priority,
            attempts, max_attempts, error, token, created_at, scheduled_for, started_at,
            completed_at, expires_at, record, worker, crashes,
        ) in rows
    ]  # fmt: skip


def leased_jobs(conn: sqlite3.Connection, rows: Iterable[JobRow], lease: Lease) -> list[Job]:
    """Jobs from rows of `claim_columns`, as `lease` left them since they were read."""
    names = version_names(conn)
    token, worker, started, expires = lease
    jobs = []
    for (
        job_id, tenant, kind, record_id, version, op, seq, priority, attempts, max_attempts,
        error, created_at, scheduled_for, completed_at, record, crashes,
    ) in rows:  # fmt: skip
        created = _moment(created_at)
        due = created if scheduled_for == created_at else _moment(scheduled_for)
        completed = None if completed_at is None else _moment(completed_at)
        jobs.append(
            _make_job(
                job_id, tenant, kind, record_id, names[version], OPS[op], seq, seq, _LEASED,
                priority, attempts + 1, max_attempts, error, token, created, due, started,
                completed, expires, record, version, worker, crashes,
            )
        )  # fmt: skip
    return jobs
