"""Claiming jobs that no other session has locked, finishing them, and finding expired leases."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from evervec.model.basics import as_datetime
from evervec.model.jobs import Job
from evervec.stores.postgres.changes import Changes
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import leases
from evervec.stores.sql.batches import columns, retried
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.jobs import JobRow, Lease, company, leased_jobs
from evervec.stores.sql.turns import by_tenant, in_turns
from evervec.stores.values import Finish

_ANY = (1 << 31) - 1
_TENANT = 1
"""position of the tenant in the rows of a claim"""
_LATE_LEASES = 60.0
"""seconds; a lease is rarely written this long after its own expiry"""


class Due(NamedTuple):
    """What a claim returns besides its jobs."""

    now: float
    seconds: float
    """how long the search for due jobs took"""
    jobs: list[int]
    """the due jobs"""
    suspect: bool
    """a worker crashed while it held one of them"""
    turn: str
    """the tenant after which the next claim starts"""
    tenants: list[str] | None
    ranks: list[int]
    times: list[float]
    firsts: list[int]


class Leases(Changes, leases.Leases):
    """The part of the store that workers use."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
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
        token = secrets.token_urlsafe(12)
        holder = (token, worker, lease)
        with self.db.statement() as conn:
            asked = (limit, self.barred(conn, versions), _ANY if suspects else 0)
            turn = self.turns.after
            due, rows = self._claim(conn, asked, turn, holder)
            if due.suspect:
                chosen = self._together(conn, due.jobs, limit)
                due, rows = self._claim(conn, asked, turn, holder, chosen)
            self.turns.after = due.turn
            names = self.names_of(conn, rows)
        given = Lease(token, worker, as_datetime(due.now), as_datetime(due.now + lease))
        return leased_jobs(names, in_turns(by_tenant(rows, _TENANT)), given)

    def _claim(
        self,
        conn: Session,
        asked: tuple[int, list[int] | None, int],
        turn: str,
        holder: tuple[str, str, float],
        chosen: list[int] | None = None,
    ) -> tuple[Due, list[JobRow]]:
        """The due jobs that were found, and the rows of those that are claimed now."""
        _, barred, crashes = asked
        key = (None if barred is None else tuple(barred), crashes)
        values = (*asked, *self.fronts.known(key), turn, *holder, chosen)
        (told, *first), *more = conn.execute(SQL.claim, values, binary=True).fetchall()
        due = Due._make(json.loads(told))
        rows = [] if first[0] is None else [first, *(row[1:] for row in more)]
        self.measured(due.now)
        if due.tenants:
            times = map(float, due.times)
            firsts = zip(due.tenants, due.ranks, times, due.firsts, strict=True)
            self.fronts.looked(key, due.seconds, firsts)
        return due, rows

    def _together(self, conn: Session, ids: list[int], limit: int) -> list[int]:
        """The due jobs to claim together with the first: a job whose worker crashed is claimed in a
        smaller batch, or alone."""
        alike = {
            id: (crashes, company(crashes, attempts, most, limit))
            for id, crashes, attempts, most in conn.execute(SQL.suspects, (ids,))
        }
        ids = [id for id in ids if id in alike]  # the others have been cancelled since
        first = alike[ids[0]] if ids else (0, 0)
        return [id for id in ids if alike[id] == first][: first[1]]

    def _finish_untouched(self, conn: Connection, finishes: Sequence[Finish]) -> set[int]:
        batches: dict[tuple[str, str], list[tuple[int, ...]]] = defaultdict(list)
        for (token, worker), same in groupby(finishes, lambda f: (f.job.token, f.worker)):
            if token is not None:
                batches[token, worker] += [
                    (f.job.job_id, f.embedded, f.reused, f.tokens)
                    for f in same
                    if f.seq == f.job.claimed_seq
                ]
        done: set[int] = set()
        for (token, worker), rows in sorted(batches.items()):
            done |= self._finish_leased(conn, token, worker, sorted(rows))
        return done

    def _finish_leased(
        self, conn: Connection, token: str, worker: str, rows: list[tuple[int, ...]]
    ) -> set[int]:
        """Finish jobs of one claim: first those whose lease is only in the claim's row, then those
        whose lease is written in their own row."""
        done: set[int] = set()
        for query in (SQL.finish_claimed, SQL.finish_untouched):
            if not rows:
                break
            ids, *told = columns(rows)
            told = [counts if any(counts) else [] for counts in told]  # all zero: send no list
            found = conn.execute(query, (token, worker, ids, *told)).fetchone()
            if found is not None:
                done.update(ids if found[0] is None else found[0])
                rows = [row for row in rows if row[0] not in done]
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
        # leases that expired long ago were seen before: skip their dead index entries
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
        since = float("-inf") if threshold is None else now - threshold
        conn.execute(SQL.write_expired, (now, since))
        found = conn.execute(SQL.expired, (now, since, tenant, limit)).fetchall()
        if not found and tenant is None:
            conn.execute(SQL.settle_claims, (now,))
        ids = [row[0] for row in found]
        rows: list[JobRow] = conn.execute(self.select_written + SQL.jobs_by_id, (ids,)).fetchall()
        return rows

    def write_leases(self, conn: Connection, jobs: Sequence[Job]) -> None:
        tokens = list({job.token for job in jobs if job.token})
        conn.execute(SQL.write_leases, (tokens, [job.job_id for job in jobs]))
