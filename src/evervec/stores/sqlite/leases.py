"""Claiming, loading and renewing under the write lock."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from itertools import chain
from typing import Any

from evervec.model.jobs import Job
from evervec.stores.sql import leases
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.job_rows import JobRow, holds
from evervec.stores.sql.job_rows import loaded as read_loaded
from evervec.stores.sql.leases import Due
from evervec.stores.sql.turns import PROMOTED_AT_ONCE, in_turns, share_out
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.values import Finish, Loaded, Unreadable


class Leases(leases.Leases):
    def _anything_due(self, conn: Connection, now: float, skipped: frozenset[str]) -> bool:
        if conn.execute(SQL.any_promoted, (now,)).fetchone():
            return True
        return next(_tenants_behind(conn, "", skipped), None) is not None

    def _due(self, conn: Connection, limit: int, wanted: Due) -> list[JobRow]:
        if conn.execute(SQL.any_promoted, (wanted.now,)).fetchone():
            conn.execute(SQL.promote, (wanted.now, PROMOTED_AT_ONCE))
        barred = None if wanted.barred is None else listed(wanted.barred)

        def first_of(tenant: str, count: int) -> list[JobRow]:
            asked = (tenant, wanted.now, wanted.crashes, barred, count)
            rows: list[JobRow] = conn.execute(self.select_due + SQL.due_of_tenant, asked).fetchall()
            return rows

        turns = self.turns.tenants(
            lambda after: _tenants_behind(conn, after, wanted.skipped), limit
        )
        weights = self.weights(conn) if len(turns) > 1 else {}
        return in_turns(share_out(turns, weights, limit, first_of))

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        loaded: list[Loaded | Unreadable | None] = []
        size = 0
        with self.db.reading() as conn:
            for record in _records(conn, jobs):
                if isinstance(record, Loaded):
                    size += len(record.text) + len(record.box or "")
                    if loaded and size > budget:
                        break
                loaded.append(record)
        return loaded

    def _release(
        self, conn: Connection, jobs: Sequence[Job], error: str | None, due: float | None
    ) -> set[int]:
        held = self._held(conn, jobs)
        conn.executemany(SQL.release, [(error, due, job_id) for job_id in held])
        return held

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        held = self._held(conn, jobs)
        until = self.engine.now() + lease
        conn.executemany(SQL.renew, [(until, job_id) for job_id in held])
        return held

    def _held(self, conn: Connection, jobs: Sequence[Job]) -> set[int]:
        """The numbers of those jobs whose token is valid: nothing else writes meanwhile."""
        standing = self._standing(conn, jobs)
        return {job.job_id for job in jobs if holds(standing, job)}

    def _finish_claimed(self, conn: Connection, token: str, finishes: Sequence[Finish]) -> set[int]:
        """All of them or none."""
        by_work: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for job, _, _, _, _, embedded, reused, tokens, worker, _, embedded_at, _ in finishes:
            by_work[embedded, reused, tokens, worker, embedded_at].append(job.job_id)
        ids = list(chain.from_iterable(by_work.values()))
        conn.execute("savepoint evervec_finish")
        ended = (self.engine.now(), listed(ids), token)
        done = conn.execute(SQL.finish_untouched, ended).rowcount == len(ids)
        if done:
            for work, some in by_work.items():
                conn.execute(SQL.add_done_attempts, (*work, listed(some)))
        else:
            conn.execute("rollback to evervec_finish")
        conn.execute("release evervec_finish")
        return set(ids) if done else set()


def _records(conn: Any, jobs: Sequence[Job]) -> Iterator[Loaded | Unreadable | None]:
    """A record per job; only a job whose row cannot be read gets `Unreadable`."""
    done = 0
    try:
        for row in conn.execute(SQL.load, (listed(j.job_id for j in jobs),)):
            yield read_loaded(row)
            done += 1
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        if len(jobs) == 1:
            yield Unreadable(str(error))
            return
        for job in jobs[done:]:
            yield from _records(conn, [job])


def _tenants_behind(conn: Connection, after: str, skipped: Container[str]) -> Iterator[str]:
    """Tenants that have jobs to claim, in the order of their names; each takes one seek in the
    index."""
    while row := conn.execute(SQL.next_tenant, (after,)).fetchone():
        (after,) = row
        if after not in skipped:
            yield after
