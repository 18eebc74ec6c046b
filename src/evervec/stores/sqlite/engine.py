"""What all parts of the SQLite store share: connections, queries, clock, counter."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from evervec.model import Job, Op, Status, as_datetime
from evervec.stores.named import Queries
from evervec.stores.sqlite.connections import Connections

SQL = Queries.read("evervec.stores.sqlite", "queries.sql")

JobRow = tuple[Any, ...]  # the columns of `job_columns` in queries.sql, in that order


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
_OP = {o.value: o for o in Op}


class Lease(NamedTuple):
    """What a claim changes of each of its jobs."""

    token: str
    started_at: datetime | None
    expires_at: datetime | None


def job_of(row: JobRow, lease: Lease | None = None) -> Job:
    """A job from a row of `job_columns`, or as `lease` left it since the row was read."""
    (
        job_id, tenant, kind, record_id, name, op, seq, claimed_seq, status, priority, attempts,
        max_attempts, error, token, created_at, scheduled_for, started_at, completed_at,
        expires_at, record, version, crashes,
    ) = row  # fmt: skip
    if lease is not None:
        status, claimed_seq, attempts = "processing", seq, attempts + 1
        token, started, expires = lease
    else:
        started, expires = as_datetime(started_at), as_datetime(expires_at)
    created = datetime.fromtimestamp(created_at, UTC)
    due = created if scheduled_for == created_at else datetime.fromtimestamp(scheduled_for, UTC)
    return Job(
        job_id, tenant, kind, record_id, name, _OP[op], seq, claimed_seq, _STATUS[status],
        priority, attempts, max_attempts, error, token, created, due, started,
        as_datetime(completed_at), expires, record, version, crashes,
    )  # fmt: skip
