"""Claiming jobs that no other session has locked, finishing them, and finding expired leases."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections import defaultdict
from collections.abc import Sequence, Set
from operator import itemgetter
from typing import Any, NamedTuple

from evervec.model.jobs import Job
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL, Engine
from evervec.stores.sql import leases
from evervec.stores.sql.changes import Changes
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.job_rows import HEAD, JobRow, Lease, company, leased_jobs
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.jobs import EVERYONE
from evervec.stores.sql.retries import retried
from evervec.stores.sql.tenants import Tenants
from evervec.stores.sql.turns import by_tenant, in_turns
from evervec.stores.values import Finish

_ANY = (1 << 31) - 1
_LATE_LEASES = 60.0
"""seconds; a lease is rarely written this long after its own expiry"""
_TOUCH_SECONDS = 1.0

CLAIMED = (
    *HEAD, "priority", "attempts", "max_attempts", "error", "created_at", "scheduled_for",
    "completed_at", "record", "crashes",
)  # fmt: skip
"""the columns of `claim_jobs`"""
_found_by = itemgetter(CLAIMED.index("error"))
_due_time = itemgetter(CLAIMED.index("scheduled_for"), CLAIMED.index("job_id"))
_priority = itemgetter(CLAIMED.index("priority"))


class Due(NamedTuple):
    """What a claim returns besides its jobs."""

    now: float
    seconds: float
    """how long the search for due jobs took"""
    jobs: list[int] | None
    """the due jobs, if a worker crashed while it held one of them; else they are claimed"""
    suspect: bool
    turn: str
    """the tenant after which the next claim starts"""
    tenants: list[str] | None
    ranks: list[int]
    times: list[float]
    firsts: list[int]


class Leases(leases.Leases):
    engine: Engine
    _none_expired_before = 0.0

    def __init__(
        self, engine: Engine, tenants: Tenants, writer: JobWriter, changes: Changes
    ) -> None:
        super().__init__(engine, tenants, writer, changes)
        self._touched: dict[int, float] = {}

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
        with self.db.reading() as conn:  # the statement commits by itself
            asked = (limit, self.barred(conn, versions), _ANY if suspects else 0)
            turn = self.turns.after
            due, rows = self._claim(conn, asked, turn, holder)
            if due.jobs is not None:
                chosen = self._together(conn, due.jobs, limit)
                due, rows = self._claim(conn, asked, turn, holder, chosen)
            self.turns.after = due.turn
            names = self.engine.version_names(conn, rows)
        jobs = leased_jobs(names, rows, Lease(token, worker, due.now, due.now + lease))
        return jobs if len(due.tenants or ()) <= 1 else in_turns(by_tenant(jobs))

    @retried
    def claim_chosen(
        self, jobs: Sequence[int], *, tenant: str, worker: str, lease: float
    ) -> list[Job]:
        token = secrets.token_urlsafe(12)
        with self.db.reading() as conn:  # the statement commits by itself
            if not self.held_back(conn, self.engine.moment(conn)).isdisjoint((tenant, EVERYONE)):
                return []
            asked = (list(jobs), tenant, token, worker, lease)
            due, rows = self._claimed(conn, SQL.claim_chosen, asked)
            names = self.engine.version_names(conn, rows)
        return leased_jobs(names, rows, Lease(token, worker, due.now, due.now + lease))

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
        values = (*holder, *asked, *self.engine.fronts.known(key), turn, chosen)
        due, rows = self._claimed(conn, SQL.claim, values)
        if due.tenants:
            times = map(float, due.times)
            firsts = zip(due.tenants, due.ranks, times, due.firsts, strict=True)
            self.engine.fronts.looked(key, due.seconds, firsts)
        return due, rows

    def _claimed(
        self, conn: Session, query: str, values: tuple[Any, ...]
    ) -> tuple[Due, list[JobRow]]:
        """What a call of `claim_jobs` returned, with the jobs in their order."""
        found, *rows = conn.execute(query, values, binary=True).fetchall()
        due = Due._make(json.loads(_found_by(found)))
        self.engine.measured(due.now)
        rows.sort(key=_due_time)
        rows.sort(key=_priority, reverse=True)
        return due, rows

    def _together(self, conn: Session, ids: list[int], limit: int) -> list[int]:
        """The due jobs to claim together with the first: a job whose worker crashed is claimed in a
        smaller batch, or alone."""
        alike = {
            id: (crashes, company(crashes, attempts + 1, most, limit))
            for id, crashes, attempts, most in conn.execute(SQL.suspects, (ids,))
        }
        ids = [id for id in ids if id in alike]  # the others have been cancelled since
        first = alike[ids[0]] if ids else (0, 0)
        return [id for id in ids if alike[id] == first][: first[1]]

    def _finish_claimed(self, conn: Connection, token: str, finishes: Sequence[Finish]) -> set[int]:
        """Finish first the jobs whose lease is only in the claim's row, then those whose lease is
        written in their own row."""
        by_worker: dict[tuple[str, float], dict[int, Finish]] = defaultdict(dict)
        for f in finishes:
            by_worker[f.worker, f.embedded_at or 0.0][f.job.job_id] = f
        done: set[int] = set()
        for (worker, embedded_at), work in sorted(by_worker.items()):
            left = sorted(work)
            for query in (SQL.finish_claimed, SQL.finish_untouched):
                ended = [work[id] for id in left]
                counts = (
                    [f.embedded for f in ended], [f.reused for f in ended],
                    [f.tokens for f in ended],
                )  # fmt: skip
                told = [n if any(n) else [] for n in counts]  # all zero: send no list
                asked = (token, worker, left, *told, embedded_at or None)
                found = conn.execute(query, asked).fetchone()
                if found is not None:
                    (some,) = found
                    done.update(left if some is None else some)
                    left = [] if some is None else [id for id in left if id not in done]
                if not left:
                    break
        return done

    def _rows_to_load(self, *wanted: Any) -> list[tuple[Any, ...]]:
        """In binary form: numbers need not be converted to text and back."""
        with self.db.reading() as conn:
            rows: list[tuple[Any, ...]] = conn.execute(SQL.load, wanted, binary=True).fetchall()
        return rows

    def touch_versions(self, conn: Connection, versions: Set[int]) -> None:
        """At most once a second: it takes two statements."""
        now = time.monotonic()
        if due := {v for v in versions if now - self._touched.get(v, -math.inf) > _TOUCH_SECONDS}:
            super().touch_versions(conn, due)
            self._touched.update(dict.fromkeys(due, now))

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        """By the database's clock."""
        self.write_leases(conn, jobs)
        return self.held_ids(conn, SQL.renew, (lease,), jobs)

    def look_for_expired(self) -> bool:
        with self.db.reading() as conn:
            now = self.engine.moment(conn)
            if not self._may_have_expired(conn, now):
                return False
        with self.db.writing(durable=False) as conn:
            conn.execute(SQL.settle_claims, (now,))
            return self._may_have_expired(conn, now)

    def _may_have_expired(self, conn: Connection, now: float) -> bool:
        # leases that expired long ago were seen before: skip their dead index entries
        since = min(self._none_expired_before, now) - _LATE_LEASES
        (soonest,) = conn.execute(SQL.next_expiry, (since,)).fetchone()
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
        ids = [job_id for (job_id,) in found]
        rows: list[JobRow] = conn.execute(
            self.engine.select_written + SQL.jobs_by_id, (ids,)
        ).fetchall()
        return rows

    def write_leases(self, conn: Connection, jobs: Sequence[Job]) -> None:
        tokens = list({job.token for job in jobs if job.token})
        conn.execute(SQL.write_leases, (tokens, [job.job_id for job in jobs]))
