"""Finishing whole batches.

A job's row is changed only if its token is still valid; from then on it is locked until the
transaction ends. A finish and the points that it wrote commit together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evervec.stores.sql.batches import columns, retried
from evervec.stores.sql.ending import Ending
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.enqueueing import Enqueueing
from evervec.stores.sql.jobs import must_last
from evervec.stores.sql.records import Row
from evervec.stores.values import Apply, Finish


class Finishing(Enqueueing, Ending):
    """The part of the store that saves what workers finish."""

    @retried
    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        if not finishes:
            return []
        self._check_read(finishes)
        with self.db.writing(durable=must_last(finishes)) as conn:
            reveals = [f.job.record for f in finishes if f.reveal is not None or f.gone]
            if reveals:  # before their jobs, as a save locks them
                self.lock_records(conn, reveals)
            done = self._finish_untouched(conn, finishes)
            rest, good = list[Finish](), list(finishes)
            if len(done) < len(finishes):
                rest = [f for f in finishes if f.job.job_id not in done]
                good = [f for f in finishes if f.job.job_id in done]
            if rest or any(f.change or f.reveal for f in good):
                now = self.moment(conn)
                if rest:
                    done |= self._finish_rest(conn, rest, good, now)
                self._write_results(conn, good, apply, now)
        if rest:
            self.wake()
        else:
            self.tell()
        return [f.job.job_id in done for f in finishes]

    def _finish_untouched(self, conn: Connection, finishes: Sequence[Finish]) -> set[int]:
        """Finish the jobs that did not change since their claim, and add their attempts. These are
        nearly all jobs."""
        batches: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for f in finishes:
            if f.job.token is not None and f.seq == f.job.claimed_seq:
                batches[f.job.token].append(
                    (f.job.job_id, f.seq, f.embedded, f.reused, f.tokens, f.worker)
                )
        done: set[int] = set()
        for token, rows in batches.items():
            done |= self._finish_claimed(conn, token, sorted(rows))
        return done

    def _finish_claimed(
        self, conn: Connection, token: str, rows: list[tuple[Any, ...]]
    ) -> set[int]:
        """Finish those of `rows` (job, seq, and the values of the attempt) that did not change
        since they were claimed with this token."""
        found = conn.execute(self.sql.finish_untouched, (token, *columns(rows)))
        return {row[0] for row in found}

    def _finish_held(self, conn: Connection, held: Sequence[Finish], now: float) -> None:
        ends = columns([(f.seq, f.job.job_id) for f in held])
        conn.execute(self.sql.finish, (now, *ends))

    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        records = [f.job.record for f in finishes]
        known = {row[0]: row[1:] for row in conn.execute(self.sql.reveal_state, (records,))}
        deletes = []
        shown: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for f in finishes:
            record = f.job.record
            if record not in known or known[record][1] > f.record_seq:
                continue
            state, _, created_at, version, born = known[record]
            if f.reveal is not None:
                row = Row(f.job.record_id, record, state, f.record_seq, created_at=created_at,
                          version=version, born=born, was_live=state == "live")  # fmt: skip
                content = (*row.content(f.reveal, now), *self._words(f.reveal))
                shown[f.job.tenant].append((record, *content))
            elif state == "live":
                deletes.append((f.seq, record))
        for tenant, rows in shown.items():
            self._update(conn, tenant, rows)
        if deletes:
            self._delete(conn, deletes, now)
