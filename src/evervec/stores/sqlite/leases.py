"""Claiming, loading and renewing."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Container, Iterator, Sequence
from typing import Any

from evervec.model.basics import as_datetime
from evervec.model.jobs import Job
from evervec.stores.sql.engine import EVERYONE, Connection
from evervec.stores.sql.jobs import JobRow, Lease, holds, leased_jobs, together
from evervec.stores.sql.jobs import loaded as read_loaded
from evervec.stores.sql.turns import PROMOTED_AT_ONCE, in_turns, share_out
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.finishing import Finishing
from evervec.stores.values import Loaded, Unreadable

SELECT_DUE = f"select {SQL.claim_columns}\n"
_ANY = 1 << 62


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
            if not self._anything_due(conn, self.now()):
                return []
        with self.db.writing(durable=False) as conn:
            now = self.now()  # the lease starts after the lock is taken
            barred = self.barred(conn, versions)
            rows = self._candidates(
                conn,
                limit,
                now,
                None if barred is None else listed(barred),
                _ANY if suspects else 0,
            )
            if not rows:
                return []
            token, until = secrets.token_urlsafe(12), now + lease
            conn.execute(SQL.lease, (token, worker, now, until, listed(row[0] for row in rows)))
            held = Lease(token, worker, as_datetime(now), as_datetime(until))
            return leased_jobs(self.version_names(conn), rows, held)

    def _anything_due(self, conn: sqlite3.Connection, now: float) -> bool:
        """Whether a claim may find a job, of any version."""
        skipped = self.held_back(conn, now)
        if EVERYONE in skipped:
            return False
        if conn.execute(SQL.any_promoted, (now,)).fetchone():
            return True
        return next(_tenants_behind(conn, "", skipped), None) is not None

    def _candidates(
        self,
        conn: sqlite3.Connection,
        limit: int,
        now: float,
        barred: str | None,
        most_crashes: int,
    ) -> list[JobRow]:
        skipped = self.held_back(conn, now)
        if EVERYONE in skipped:
            return []
        if conn.execute(SQL.any_promoted, (now,)).fetchone():
            conn.execute(SQL.promote, (now, PROMOTED_AT_ONCE))

        def first_of(tenant: str, count: int) -> list[JobRow]:
            asked = (tenant, now, most_crashes, barred, count)
            return conn.execute(SELECT_DUE + SQL.due_of_tenant, asked).fetchall()

        turns = self.turns.tenants(lambda after: _tenants_behind(conn, after, skipped), limit)
        weights = self.weights(conn) if len(turns) > 1 else {}
        return together(in_turns(share_out(turns, weights, limit, first_of)), limit)

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
        self.wake()
        return done

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        standing = self._standing(conn, jobs)
        held = {job.job_id for job in jobs if holds(standing, job)}
        until = self.now() + lease
        conn.executemany(SQL.renew, [(until, job_id) for job_id in held])
        return held

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        which = None if versions is None else listed(versions)
        with self.db.reading() as conn:
            moments = [conn.execute(SQL.next_scheduled, (which,)).fetchone()[0]]
            moments.append(conn.execute(SQL.next_expiry).fetchone()[0])
        return min((m for m in moments if m is not None), default=None)

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            soonest = conn.execute(SQL.next_expiry).fetchone()[0]
        return soonest is not None and soonest < self.now()


def _rows_to_load(
    conn: sqlite3.Connection, jobs: Sequence[Job]
) -> Iterator[tuple[Any, ...] | Unreadable]:
    """A row per job; only a job whose row cannot be read gets `Unreadable`."""
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


def _tenants_behind(conn: sqlite3.Connection, after: str, skipped: Container[str]) -> Iterator[str]:
    """Tenants that have jobs to claim, in the order of their names; each takes one seek in the
    index."""
    while row := conn.execute(SQL.next_tenant, (after,)).fetchone():
        (after,) = row
        if after not in skipped:
            yield after
