"""Claiming, loading, renewing, and taking back what a dead worker held."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from evervec.model import Job, Outcome
from evervec.stores.base import Loaded, Unreadable
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL, retried
from evervec.stores.postgres.finishing import Finishing, add_attempts, put_back, put_back_row
from evervec.stores.sql.jobs import after_crash, attempt_row, company, loaded

_ANY = (1 << 31) - 1
_LATE_LEASES = 60.0
"""A lease is seldom written this long after the moment at which it will end."""


class Leases(Finishing):
    """The part of the store that workers use."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ring = ""
        self._none_expired_before = 0.0

    @retried
    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease: float,
        versions: Sequence[int] | None = None,
        suspects: bool = True,
    ) -> list[Job]:
        with self.db.writing(durable=False) as conn:
            now, paused = conn.execute(SQL.paused_now).fetchone()
            self.measured(now)
            if paused:
                return []
            ids = self._due(conn, limit, now, versions, _ANY if suspects else 0)
            if not ids:
                return []
            values = (secrets.token_urlsafe(12), worker, now, now + lease, ids)
            rows = conn.execute(f"{SQL.lease} {SQL.leased_columns}", values).fetchall()
            place = {job_id: n for n, job_id in enumerate(ids)}
            rows.sort(key=lambda row: place[row[0]])
            return self.jobs_of(conn, rows)

    def _due(
        self,
        conn: Session,
        limit: int,
        now: float,
        versions: Sequence[int] | None,
        most_crashes: int,
    ) -> list[int]:
        """Due jobs, locked; a job whose worker crashed with fewer others, or alone."""
        which = None if versions is None else sorted(versions)
        key = (tuple(which) if which is not None else None, most_crashes)
        known = self.fronts.known(key)
        began = time.monotonic()
        rows = conn.execute(
            SQL.due_jobs, (limit, now, which, most_crashes, *known, self._ring)
        ).fetchall()
        self.fronts.looked(key, time.monotonic() - began, [(r[4], r[5], r[0]) for r in rows])
        if not rows:
            return []
        self._ring = rows[-1][6]
        if any(crashes for _, _, _, crashes, *_ in rows):
            crashes = rows[0][3]
            together = company(crashes, rows[0][1], rows[0][2], limit)
            rows = [
                row
                for row in rows
                if row[3] == crashes and company(row[3], row[1], row[2], limit) == together
            ][:together]
        return [row[0] for row in rows]

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        with self.db.reading() as conn:
            rows = conn.execute(SQL.load, ([job.job_id for job in jobs], budget)).fetchall()
        return [None if row[2] is None else loaded(row) for row in rows]

    @retried
    def release(self, jobs: Sequence[Job], *, error: str | None = None) -> list[bool]:
        clean = None if error is None else error.replace("\0", " ")
        with self.db.writing(durable=False) as conn:
            rows = conn.execute(SQL.release, (clean, *_held(jobs)))
            done = {row[0] for row in rows}
        self.wake()
        return [job.job_id in done for job in jobs]

    @retried
    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]:
        with self.db.writing(durable=False) as conn:
            held = {row[0] for row in conn.execute(SQL.renew, (lease, *_held(jobs)))}
        return [job.job_id in held for job in jobs]

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        which = None if versions is None else list(versions)
        with self.db.reading() as conn:
            moments = [conn.execute(SQL.next_scheduled, (which,)).fetchone()[0]]
            moments.append(conn.execute(SQL.next_expiry, (0.0,)).fetchone()[0])
        return min((m for m in moments if m is not None), default=None)

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            now = self.moment(conn)
            # what ended long ago was seen before; its dead entries need not be walked again
            since = min(self._none_expired_before, now) - _LATE_LEASES
            soonest = conn.execute(SQL.next_expiry, (since,)).fetchone()[0]
        if soonest is not None and soonest < now:
            return True
        self._none_expired_before = now
        return False

    @retried
    def recover(self, *, threshold: float | None = None, limit: int = 1000) -> list[Job]:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            back, attempts = [], []
            for job in self.jobs_of(conn, self._expired(conn, now, threshold, limit)):
                end, spent, error = after_crash(job)
                back.append(put_back_row(job, end, now, spent, 1, error, now))
                attempts.append(attempt_row(job, Outcome.CRASHED, job.worker or "", error, now))
            put_back(conn, back)
            add_attempts(conn, attempts)
            ended = [row[-1] for row in back]
            rows = conn.execute(self.select_jobs + SQL.jobs_by_id, (ended,)).fetchall()
            recovered = self.jobs_of(conn, rows)
        self.wake()
        return recovered

    def _expired(
        self, conn: Session, now: float, threshold: float | None, limit: int
    ) -> list[tuple[Any, ...]]:
        if threshold is None:
            return conn.execute(self.select_jobs + SQL.expired, (now, limit)).fetchall()
        which = (now, now - threshold, limit)
        return conn.execute(self.select_jobs + SQL.stuck, which).fetchall()


def _held(jobs: Sequence[Job]) -> tuple[list[int], list[str | None]]:
    ordered = sorted(jobs, key=lambda job: job.job_id)
    return [job.job_id for job in ordered], [job.token for job in ordered]
