"""Claiming, loading and renewing."""

from __future__ import annotations

import math
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from typing import Any

from evervec.model import Job, as_datetime
from evervec.stores.sql.engine import EVERYONE, Connection
from evervec.stores.sql.jobs import Lease, holds, leased_jobs, together
from evervec.stores.sql.jobs import loaded as read_loaded
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.finishing import Finishing
from evervec.stores.values import Loaded, Unreadable

SELECT_DUE = f"select {SQL.claim_columns}\n"
_ANY = 1 << 62
_LATE_COMMITS = 10.0
"""A job that is due at once is seldom seen so many seconds later: its writer held up all others."""


class Leases(Finishing):
    """The part of the store that workers use."""

    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease: float,
        versions: Sequence[int] | None = None,
        suspects: bool = True,
    ) -> list[Job]:
        with self.db.reading() as conn:  # an idle worker takes no write lock
            if not self._due(conn, self.now()):
                return []
        with self.db.writing(durable=False) as conn:
            now = self.now()  # the lease runs from here, however long the lock took
            rows = self._candidates(conn, limit, now, versions, _ANY if suspects else 0)
            if not rows:
                return []
            token, until = secrets.token_urlsafe(12), now + lease
            conn.execute(SQL.lease, (token, worker, now, until, listed(row[0] for row in rows)))
            held = Lease(token, worker, as_datetime(now), as_datetime(until))
            return leased_jobs(self.version_names(conn), rows, held)

    def _due(self, conn: sqlite3.Connection, now: float) -> dict[int, float]:
        """The priorities of due jobs, highest first, and when the first of each was due. Those of
        paused tenants are passed over, and once they are many not walked past each time."""
        paused = self.pauses(conn)
        if EVERYONE in paused:
            return {}
        levels, times, _ = self.fronts.known(paused)
        known = dict(zip(levels, times, strict=True))
        began = time.monotonic()
        firsts = {}
        for level in priorities(conn):
            row = conn.execute(SQL.first_due, (level, known.get(level, -math.inf), now)).fetchone()
            firsts[level] = row[0] if row else math.inf
        if paused:
            none = now - _LATE_COMMITS
            places = [(level, none if f == math.inf else f, 0) for level, f in firsts.items()]
            self.fronts.looked(paused, time.monotonic() - began, places)
        return {level: first for level, first in firsts.items() if first < math.inf}

    def _candidates(
        self,
        conn: sqlite3.Connection,
        limit: int,
        now: float,
        versions: Sequence[int] | None,
        most_crashes: int,
    ) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for level, first in self._due(conn, now).items():
            if len(rows) >= limit:
                break
            left = limit - len(rows)
            due = (level, first, now, most_crashes)
            if versions is None:
                rows += conn.execute(SELECT_DUE + SQL.due_at_priority, (*due, left))
            else:
                which = (*due, listed(versions), left)
                rows += conn.execute(SELECT_DUE + SQL.due_at_priority_of, which)
        return together(rows, limit)

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        loaded: list[Loaded | Unreadable | None] = []
        size = 0
        with self.db.reading() as conn:
            for row in _rows_to_load(conn, jobs):
                if isinstance(row, Unreadable) or row[2] is None:
                    loaded.append(row if isinstance(row, Unreadable) else None)
                    continue
                size += len(row[4]) + len(row[9] or "")
                if loaded and size > budget:
                    break
                loaded.append(read_loaded(row))
        return loaded

    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        with self.db.writing(durable=False) as conn:
            done = [
                conn.execute(SQL.release, (error, due, job.job_id, job.token)).rowcount == 1
                for job in jobs
            ]
        self.fronts.forget()  # they may stand now before what was the first
        self.wake()
        return done

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        standing = self._standing(conn, jobs)
        held = {job.job_id for job in jobs if holds(standing, job)}
        until = self.now() + lease
        conn.executemany(SQL.renew, [(until, job_id) for job_id in held])
        return held

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        moments = []
        with self.db.reading() as conn:
            for level in priorities(conn):
                if versions is None:
                    row = conn.execute(SQL.next_scheduled, (level,)).fetchone()
                else:
                    which = (level, listed(versions))
                    row = conn.execute(SQL.next_scheduled_of, which).fetchone()
                moments += [row[0]] if row else []
            moments.append(conn.execute(SQL.next_expiry).fetchone()[0])
        return min((m for m in moments if m is not None), default=None)

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            soonest = conn.execute(SQL.next_expiry).fetchone()[0]
        return soonest is not None and soonest < self.now()


def _rows_to_load(
    conn: sqlite3.Connection, jobs: Sequence[Job]
) -> Iterator[tuple[Any, ...] | Unreadable]:
    """A row for each job; if one cannot be read at all, that one alone says so."""
    done = 0
    try:
        for row in conn.execute(SQL.load, (listed(j.job_id for j in jobs),)):
            yield row
            done += 1
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        if len(jobs) == 1:
            yield Unreadable(str(error))
            return
        for job in jobs[done:]:
            yield from _rows_to_load(conn, [job])


def priorities(conn: sqlite3.Connection) -> Iterator[int]:
    """The priorities that pending jobs have, highest first, each by one step in the index."""
    row = conn.execute(SQL.next_priority, (1 << 62,)).fetchone()
    while row:
        yield row[0]
        row = conn.execute(SQL.next_priority, row).fetchone()
