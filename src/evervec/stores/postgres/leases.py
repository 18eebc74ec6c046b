"""Claiming what others have not locked, and seeing whether a lease ran out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import Any

from evervec.model import Job
from evervec.stores.postgres.changes import Changes
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import leases
from evervec.stores.sql.batches import retried
from evervec.stores.sql.jobs import company

_ANY = (1 << 31) - 1
_LATE_LEASES = 60.0
"""A lease is seldom written this long after the moment at which it will end."""


class Leases(Changes, leases.Leases):
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
