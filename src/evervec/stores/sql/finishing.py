"""Finishing and failing: only the holder of a job's token may end it.

A job's row is changed only where its token still stands, and by nobody else from then on until
the transaction ends. A finish and the points it wrote commit together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from evervec.model import Job, Outcome, Status
from evervec.stores.ledger import pack_chunks
from evervec.stores.sql.batches import columns, retried
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.enqueueing import Enqueueing
from evervec.stores.sql.jobs import (
    Standing,
    after_failure,
    attempt_row,
    done_row,
    holds,
    was_finished,
)
from evervec.stores.sql.records import Row
from evervec.stores.values import Apply, Failure, Finish


class Finishing(Enqueueing):
    """The part of the store that takes what workers bring back."""

    @retried
    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        if not finishes:
            return []
        with self.db.writing(durable=False) as conn:
            reveals = [f.job.record for f in finishes if f.reveal is not None or f.gone]
            if reveals:  # before their jobs, as a save locks them
                self.lock_records(conn, reveals)
            done = self._finish_untouched(conn, finishes)
            rest, good = list[Finish](), list(finishes)
            if len(done) < len(finishes):
                rest = [f for f in finishes if f.job.job_id not in done]
                good = [f for f in finishes if f.job.job_id in done]
            if rest or any(f.change for f in good):
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
        """Finish what is still as it was claimed, with its attempts: all but a few."""
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
        """Finish those of `rows` (job, seq, and what an attempt tells) that stand as they were
        claimed with a token."""
        found = conn.execute(self.sql.finish_untouched, (token, *columns(rows)))
        return {row[0] for row in found}

    def _finish_rest(
        self, conn: Connection, finishes: Sequence[Finish], good: list[Finish], now: float
    ) -> set[int]:
        """Those that lost their lease, were overtaken or came before. What may still be written
        joins the good ones."""
        standing = self._standing(conn, [f.job for f in finishes])
        held = [f for f in finishes if holds(standing, f.job)]
        overtaken = [f.job.record for f in held if standing[f.job.job_id].seq > f.seq]
        # from which seq on they are what they are: what is older was deleted since
        born = dict(conn.execute(self.sql.born, (overtaken,)).fetchall()) if overtaken else {}
        good += [f for f in held if f.seq >= born.get(f.job.record, 0)]
        if held:
            ends = columns([(f.seq, f.job.job_id) for f in held])
            conn.execute(self.sql.finish, (now, *ends))
            self._add_attempts(conn, [done_row(f, now) for f in held])
        repeated = {f.job.job_id for f in finishes if was_finished(standing, f)}
        return repeated.union(f.job.job_id for f in held)

    def _write_results(
        self, conn: Connection, held: Sequence[Finish], apply: Apply | None, now: float
    ) -> None:
        """Points, records and ledger of jobs whose lease holds."""
        changes = [f.change for f in held if f.change]
        if not changes:
            return
        if apply is not None:
            apply(changes, conn)
        reveals = [f for f in held if f.reveal is not None or f.gone]
        if reveals:
            self._reveal(conn, reveals, now)
        kept, dropped = [], []
        for f in held:
            if c := f.change:
                if f.chunks:
                    kept.append((c.record, c.version, c.seq, pack_chunks(f.chunks)))
                else:
                    dropped.append((c.record, c.version, c.seq))
        if kept:
            conn.execute(self.sql.put_ledger, columns(sorted(kept)))
        if dropped:
            conn.execute(self.sql.drop_ledger, columns(sorted(dropped)))
        conn.execute(self.sql.touch_versions, (now, list({f.job.version for f in held})))

    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        """Boxed and loaded records appear, unless something newer came first."""
        records = [f.job.record for f in finishes]
        known = {row[0]: row[1:] for row in conn.execute(self.sql.reveal_state, (records,))}
        deletes = []
        shown: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for f in finishes:
            record = f.job.record
            if record not in known or known[record][1] > f.seq:
                continue
            state, _, created_at, version, born = known[record]
            if f.reveal is not None:
                row = Row(f.job.record_id, record, state, f.seq, created_at=created_at,
                          version=version, born=born, was_live=state == "live")  # fmt: skip
                content = (*row.content(f.reveal, now), *self._words(f.reveal))
                shown[f.job.tenant].append((record, *content))
            elif state == "live":
                deletes.append((f.seq, record))
        for tenant, rows in shown.items():
            self._update(conn, tenant, rows)
        if deletes:
            self._delete(conn, deletes, now)

    @retried
    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        ends: list[Status | None] = []
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            standing = self._standing(conn, [f.job for f in failures])
            back, attempts = [], []
            for f in failures:
                if not holds(standing, f.job):
                    ends.append(None)
                    continue
                end, due, spent = after_failure(standing[f.job.job_id], f.job, f.retry_at, now)
                back.append(put_back_row(f.job, end, due, spent, 0, f.error, now))
                outcome = Outcome.FAILED if end is Status.FAILED else Outcome.RETRY
                attempts.append(attempt_row(f.job, outcome, f.worker, f.error, now))
                ends.append(end)
            self._put_back(conn, back)
            self._add_attempts(conn, attempts)
        self.wake()
        return ends

    def _standing(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, Standing]:
        """The rows of jobs, which nobody else changes until the transaction ends."""
        rows = conn.execute(self.sql.standing, ([job.job_id for job in jobs],))
        return {row[0]: Standing._make(row) for row in rows}

    def _put_back(self, conn: Connection, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            conn.execute(self.sql.put_back, columns(rows))

    def _add_attempts(self, conn: Connection, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            cleaned = [(*row[:-1], row[-1] and row[-1].replace("\0", " ")) for row in rows]
            conn.execute(self.sql.add_attempts, columns(cleaned))


def put_back_row(
    job: Job, end: Status, due: float, attempts: int, crashes: int, error: str, now: float
) -> tuple[Any, ...]:
    completed = now if end is Status.FAILED else None
    return end.value, due, attempts, crashes, error.replace("\0", " "), completed, job.job_id
