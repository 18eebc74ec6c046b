"""Claiming what others have not locked, finishing, and seeing whether a lease ran out."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evervec.model import Job, as_datetime
from evervec.stores.postgres.changes import Changes
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import leases
from evervec.stores.sql.batches import columns, retried
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.jobs import JobRow, Lease, company, leased_jobs
from evervec.stores.values import Finish

_ANY = (1 << 31) - 1
_LATE_LEASES = 60.0
"""A lease is seldom written this long after the moment at which it will end."""


class Leases(Changes, leases.Leases):
    """The part of the store that workers use."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._ring = ""
        self._paused: list[str] = []
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
            now, ids = self._due(conn, limit, versions, _ANY if suspects else 0)
            if not ids:
                return []
            token, until = secrets.token_urlsafe(12), now + lease
            leased = conn.execute(SQL.lease, (token, worker, now, until, ids), binary=True)
            place = {job_id: n for n, job_id in enumerate(ids)}
            rows = sorted(leased.fetchall(), key=lambda row: place[row[0]])
            names = self.names_of(conn, rows)
            given = Lease(token, worker, as_datetime(now), as_datetime(until))
            return leased_jobs(names, rows, given)

    def _due(
        self, conn: Session, limit: int, versions: Sequence[int] | None, most_crashes: int
    ) -> tuple[float, list[int]]:
        """The time, and due jobs, locked; a job whose worker crashed with fewer others, or alone."""
        which = None if versions is None else sorted(versions)
        key = (tuple(which) if which is not None else None, most_crashes, tuple(self._paused))
        known = self.fronts.known(key)
        began = time.monotonic()
        asked = (limit, which, most_crashes, *known, self._ring)
        found = conn.execute(SQL.due_jobs, asked, binary=True).fetchone()
        now, ids, suspect, self._ring, paused, *firsts = found
        self.measured(now)
        if paused != self._paused:
            self._paused = paused
            if known[0]:  # another's first job stands elsewhere
                return self._due(conn, limit, versions, most_crashes)
        if firsts[0]:
            self.fronts.looked(key, time.monotonic() - began, zip(*firsts, strict=True))
        if suspect:
            ids = self._together(conn, ids, limit)
        return now, ids

    def _together(self, conn: Session, ids: list[int], limit: int) -> list[int]:
        """Of due jobs, those to be claimed with the first."""
        alike = {
            id: (crashes, company(crashes, attempts, most, limit))
            for id, crashes, attempts, most in conn.execute(SQL.suspects, (ids,))
        }
        first = alike[ids[0]]
        return [id for id in ids if alike[id] == first][: first[1]]

    def _finish_untouched(self, conn: Connection, finishes: Sequence[Finish]) -> set[int]:
        batches: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
        for f in finishes:
            job = f.job
            if job.token is not None and f.seq == job.claimed_seq:
                row = (job.job_id, f.embedded, f.reused, f.tokens)
                batches[job.token, f.worker].append(row)
        done: set[int] = set()
        for (token, worker), rows in sorted(batches.items()):
            ids, *told = columns(sorted(rows))
            told = [counts if any(counts) else [] for counts in told]  # an index of their own: none
            some = conn.execute(SQL.finish_untouched, (token, worker, ids, *told)).fetchone()[0]
            done.update(ids if some is None else some)
        return done

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            now = self.moment(conn)
            if not self._may_have_expired(conn, now):
                return False
        with self.db.writing(durable=False) as conn:
            conn.execute(SQL.settle_claims, (now,))
            return self._may_have_expired(conn, now)

    def _may_have_expired(self, conn: Connection, now: float) -> bool:
        # what ended long ago was seen before; its dead entries need not be walked again
        since = min(self._none_expired_before, now) - _LATE_LEASES
        soonest = conn.execute(SQL.next_expiry, (since,)).fetchone()[0]
        if soonest is not None and soonest < now:
            return True
        self._none_expired_before = now
        return False

    def _expired(
        self,
        conn: Connection,
        now: float,
        threshold: float | None,
        tenant: str | None,
        limit: int,
    ) -> list[JobRow]:
        rows = super()._expired(conn, now, threshold, tenant, limit)
        if not rows and tenant is None:
            conn.execute(SQL.settle_claims, (now,))
        return rows
