"""Finishing, a whole batch at once where possible.

Everything runs under the write lock, so a token that was checked stays valid until
the transaction ends. A finish and the points that it wrote commit together.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain

from evervec.stores.sql.ending import Ending
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.jobs import must_last
from evervec.stores.sql.records import scope
from evervec.stores.sqlite.engine import SQL, listed
from evervec.stores.sqlite.enqueueing import Enqueueing
from evervec.stores.values import Apply, Finish


class Finishing(Enqueueing, Ending):
    """The part of the store that saves what workers finish."""

    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        if not finishes:
            return []
        self._check_read(finishes)
        with self.db.writing(durable=must_last(finishes)) as conn:
            now = self.now()
            if _finish_untouched(conn, finishes, now):
                self._write_results(conn, finishes, apply, now)
                done = [True] * len(finishes)
            else:  # some lost their lease, were overtaken or were finished before
                good: list[Finish] = []
                ended = self._finish_rest(conn, finishes, good, now)
                self._write_results(conn, good, apply, now)
                done = [f.job.job_id in ended for f in finishes]
        self.wake()
        return done

    def _finish_held(self, conn: Connection, held: Sequence[Finish], now: float) -> None:
        conn.executemany(SQL.finish, [(f.seq, now, f.job.job_id) for f in held])

    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        self.fresh_number(conn)  # so that caches of these records are refreshed
        for f in finishes:
            job = f.job
            row = conn.execute(SQL.reveal_state, (job.record,)).fetchone()
            if row is None or row[1] > f.record_seq:
                continue
            state, _, created_at, version, born = row
            word = scope(job.tenant)
            if state == "live":
                conn.execute(SQL.unindex_text, (word, listed([job.record])))
            if f.reveal is None:
                if state == "live":
                    conn.execute(SQL.delete_record, (f.seq, now, job.record))
                continue
            d, seq = f.reveal, f.record_seq
            created = created_at if state == "live" else now
            conn.execute(
                SQL.update_record,
                (
                    "live", seq, born if state == "live" else seq, d.hash, d.weight,
                    created if d.created_at is None else d.created_at,
                    now if d.updated_at is None else d.updated_at,
                    version, d.title, d.metadata, d.data, d.text, job.record,
                ),
            )  # fmt: skip
            conn.execute(SQL.index_text, (job.record, word, d.title or "", d.text))


def _finish_untouched(conn: sqlite3.Connection, finishes: Sequence[Finish], now: float) -> bool:
    """Finish a whole batch at once, with its attempts, if none of its jobs changed since the claim.
    Otherwise nothing is changed, and the result is False."""
    token = finishes[0].job.token
    by_work: defaultdict[tuple[int, int, int, str], list[int]] = defaultdict(list)
    for job, change, _, _, _, embedded, reused, tokens, worker, _ in finishes:
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
