"""Finishing and failing: only the holder of a job's token may end it.

All of it runs under the write lock, so a token that was checked stays good until
the transaction ends. A finish and the points it wrote commit together.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from evervec.model import Job, Outcome, Status
from evervec.stores.ledger import pack_chunks
from evervec.stores.sql.jobs import (
    Standing,
    after_failure,
    attempt_row,
    done_row,
    holds,
    was_finished,
)
from evervec.stores.sql.records import scope
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.enqueueing import Enqueueing
from evervec.stores.values import Apply, Failure, Finish


class Finishing(Enqueueing):
    """The part of the store that takes what workers bring back."""

    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        if not finishes:
            return []
        with self.db.writing(durable=False) as conn:
            now = self.now()
            if _finish_untouched(conn, finishes, now):
                self._write_results(conn, finishes, apply, now)
                done = [True] * len(finishes)
            else:
                good = self._finish_one_by_one(conn, finishes, apply, now)
                done = [f.job.job_id in good for f in finishes]
        self.wake()
        return done

    def _finish_one_by_one(
        self, conn: sqlite3.Connection, finishes: Sequence[Finish], apply: Apply | None, now: float
    ) -> set[int]:
        """For a batch of which some lost their lease, were overtaken or came before."""
        standing = standing_of(conn, [f.job for f in finishes])
        held = [f for f in finishes if holds(standing, f.job)]
        overtaken = [f.job.record for f in held if standing[f.job.job_id].seq > f.seq]
        born = _born(conn, overtaken)
        good = [f for f in held if f.seq >= born.get(f.job.record, 0)]
        self._write_results(conn, good, apply, now)
        conn.executemany(SQL.finish, [(f.seq, now, f.job.job_id) for f in held])
        conn.executemany(SQL.add_attempt, [done_row(f, now) for f in held])
        repeated = {f.job.job_id for f in finishes if was_finished(standing, f)}
        return repeated.union(f.job.job_id for f in held)

    def _write_results(
        self, conn: sqlite3.Connection, held: Sequence[Finish], apply: Apply | None, now: float
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
        conn.executemany(SQL.put_ledger, kept)
        conn.executemany(SQL.drop_ledger, dropped)
        conn.executemany(
            SQL.touch_version, [(now, version) for version in {f.job.version for f in held}]
        )

    def _reveal(self, conn: sqlite3.Connection, finishes: Sequence[Finish], now: float) -> None:
        """Boxed and loaded records appear, unless something newer came first."""
        self.take_numbers(conn, 1)  # so that what is remembered of them is looked up again
        for f in finishes:
            job = f.job
            row = conn.execute(SQL.reveal_state, (job.record,)).fetchone()
            if row is None or row[1] > f.seq:
                continue
            state, _, created_at, version, born = row
            word = scope(job.tenant)
            if state == "live":
                conn.execute(SQL.unindex_text, (word, listed([job.record])))
            if f.reveal is None:
                if state == "live":
                    conn.execute(SQL.delete_record, (f.seq, now, job.record))
                continue
            d = f.reveal
            created = created_at if state == "live" else now
            conn.execute(
                SQL.update_record,
                (
                    "live", f.seq, born if state == "live" else f.seq, d.hash, d.weight,
                    created if d.created_at is None else d.created_at,
                    now if d.updated_at is None else d.updated_at,
                    version, d.title, d.metadata, d.data, d.text, job.record,
                ),
            )  # fmt: skip
            conn.execute(SQL.index_text, (job.record, word, d.title or "", d.text))

    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        ends: list[Status | None] = []
        with self.db.writing(durable=False) as conn:
            now = self.now()
            standing = standing_of(conn, [f.job for f in failures])
            attempts = []
            for f in failures:
                if not holds(standing, f.job):
                    ends.append(None)
                    continue
                row = standing[f.job.job_id]
                end, due, spent = after_failure(row, f.job, f.retry_at, now)
                put_back(conn, f.job, end, due, spent, 0, f.error, now)
                outcome = Outcome.FAILED if end is Status.FAILED else Outcome.RETRY
                attempts.append(attempt_row(f.job, outcome, f.worker, f.error, now))
                ends.append(end)
            conn.executemany(SQL.add_attempt, attempts)
        self.wake()
        return ends


def _finish_untouched(conn: sqlite3.Connection, finishes: Sequence[Finish], now: float) -> bool:
    """Finish a whole batch at once, with its attempts, if all of it is still as it was claimed;
    else nothing is changed."""
    token = finishes[0].job.token
    by_work: defaultdict[tuple[int, int, int, str], list[int]] = defaultdict(list)
    for job, change, _, _, _, embedded, reused, tokens, worker in finishes:
        if job.token != token or (change and change.seq != job.claimed_seq):
            return False
        by_work[embedded, reused, tokens, worker].append(job.job_id)
    everything = listed(chain.from_iterable(by_work.values()))
    conn.execute("savepoint evervec_finish")
    done = conn.execute(SQL.finish_untouched, (now, everything, token)).rowcount
    if done == len(finishes):
        for work, ids in by_work.items():
            conn.execute(SQL.add_done_attempts, (*work, listed(ids)))
    else:
        conn.execute("rollback to evervec_finish")
    conn.execute("release evervec_finish")
    return done == len(finishes)


def standing_of(conn: sqlite3.Connection, jobs: Sequence[Job]) -> dict[int, Standing]:
    rows = conn.execute(SQL.standing, (listed(job.job_id for job in jobs),))
    return {row[0]: Standing._make(row) for row in rows}


def _born(conn: sqlite3.Connection, records: list[int]) -> dict[int, int]:
    """From which seq on the records are what they are: what is older was deleted since."""
    if not records:
        return {}
    return dict(conn.execute(SQL.born, (listed(records),)).fetchall())


def put_back(
    conn: sqlite3.Connection,
    job: Job,
    end: Status,
    due: float,
    attempts: int,
    crashes: int,
    error: str,
    now: float,
) -> None:
    completed = now if end is Status.FAILED else None
    conn.execute(SQL.put_back, (end.value, due, attempts, crashes, error, completed, job.job_id))
