"""Claiming and finishing, under the writers' lock: rows do not change after they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from evervec.stores.sql import leases
from evervec.stores.sql.engine import Connection, columns
from evervec.stores.sql.job_rows import JobRow
from evervec.stores.sql.leases import Due
from evervec.stores.sql.turns import behind, in_turns, share_out
from evervec.stores.values import Finish


class Leases(leases.Leases):
    def _anything_due(self, conn: Connection, now: float, skipped: frozenset[str]) -> bool:
        return conn.execute(self.sql.due_any, (now, list(skipped))).fetchone() is not None

    def _due(self, conn: Connection, limit: int, wanted: Due) -> list[JobRow]:
        asked = (limit, wanted.now, wanted.barred, wanted.crashes, list(wanted.skipped))
        first: dict[str, list[int]] = dict(conn.execute(self.sql.first_due, asked).fetchall())
        turns = self.turns.tenants(partial(behind, list(first)), limit)
        shared = share_out(turns, self.weights(conn), limit, lambda t, count: first[t][:count])
        ids = in_turns(shared)
        if not ids:
            return []
        query = self.select_due + self.sql.due_jobs
        rows: list[JobRow] = conn.execute(query, (ids,)).fetchall()
        return rows

    def _finish_claimed(self, conn: Connection, token: str, finishes: Sequence[Finish]) -> set[int]:
        ids = columns(sorted((f.job.job_id, f.seq) for f in finishes))
        ended = (token, self.engine.now(), *ids)
        done = {id for (id,) in conn.execute(self.sql.finish_untouched, ended).fetchall()}
        attempts = [
            (f.job.job_id, f.embedded, f.reused, f.tokens, f.worker, f.embedded_at)
            for f in finishes
            if f.job.job_id in done
        ]
        self.engine.each(conn, self.sql.add_done_attempts, sorted(attempts))
        return done
