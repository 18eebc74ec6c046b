"""Claiming and finishing, under the writers' lock: rows do not change after they are read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from evervec.model.basics import as_datetime
from evervec.model.jobs import Job
from evervec.stores.duckdb.changes import Changes
from evervec.stores.duckdb.engine import SQL
from evervec.stores.sql import leases
from evervec.stores.sql.batches import columns
from evervec.stores.sql.engine import EVERYONE, Connection
from evervec.stores.sql.jobs import JobRow, Lease, leased_jobs, together
from evervec.stores.sql.leases import held_rows
from evervec.stores.sql.turns import behind, in_turns, share_out
from evervec.stores.values import Finish

_ANY = 1 << 62


class Leases(Changes, leases.Leases):
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
        with self.db.reading() as conn:  # an idle worker takes no lock
            paused = self.held_back(conn, self.now())
            due = (self.now(), list(paused))
            if EVERYONE in paused or conn.execute(SQL.due_any, due).fetchone() is None:
                return []
        with self.db.writing(durable=False) as conn:
            now = self.now()  # the lease starts now, after the wait for the lock
            paused = self.held_back(conn, now)
            if EVERYONE in paused:
                return []
            barred = self.barred(conn, versions)
            asked = (limit, now, barred, _ANY if suspects else 0, list(paused))
            rows = self._candidates(conn, limit, dict(conn.execute(SQL.first_due, asked)))
            if not rows:
                return []
            token, until = secrets.token_urlsafe(12), now + lease
            conn.execute(SQL.lease, (token, worker, now, until, [row[0] for row in rows]))
            held = Lease(token, worker, as_datetime(now), as_datetime(until))
            return leased_jobs(self.version_names(conn), rows, held)

    def _candidates(
        self, conn: Connection, limit: int, first: Mapping[str, list[int]]
    ) -> list[JobRow]:
        """The jobs of the next claim; `first`: the first due jobs of each tenant."""
        turns = self.turns.tenants(partial(behind, list(first)), limit)
        shared = share_out(turns, self.weights(conn), limit, lambda t, count: first[t][:count])
        ids = in_turns(shared)
        if not ids:
            return []
        rows = {row[0]: row for row in conn.execute(SQL.due_jobs, (ids,)).fetchall()}
        return together([rows[id] for id in ids if id in rows], limit)

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            soonest = conn.execute(SQL.next_expiry, (0.0,)).fetchone()[0]
        return soonest is not None and soonest < self.now()

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        ends = (self.now() + lease, *held_rows(jobs))
        return {row[0] for row in conn.execute(SQL.renew, ends)}

    def _finish_claimed(
        self, conn: Connection, token: str, rows: list[tuple[Any, ...]]
    ) -> set[int]:
        ids = columns([row[:2] for row in rows])
        done = {row[0] for row in conn.execute(SQL.finish_untouched, (token, self.now(), *ids))}
        attempts = [(row[0], *row[2:]) for row in rows if row[0] in done]
        if attempts:
            conn.execute(SQL.add_done_attempts, columns(attempts))
        return done

    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        self.fresh_number(conn)  # changes `mark`, which invalidates caches of these records
        super()._reveal(conn, finishes, now)
