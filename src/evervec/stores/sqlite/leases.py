"""Claiming and finishing: only the holder of a job's token may end it.

All of it runs under the write lock, so a token that was checked stays good until
the transaction ends. A finish and the points it wrote commit together.
"""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from evervec.model import Job, Op, Outcome, Status, as_datetime
from evervec.stores.base import (
    Apply,
    Failure,
    Finish,
    Loaded,
    Unreadable,
    pack_chunks,
    unpack_chunks,
)
from evervec.stores.sqlite.changes import Changes, scope
from evervec.stores.sqlite.engine import SQL, JobRow, Lease, jobs_of, listed

SELECT_JOBS = f"select {SQL.job_columns}\n"
CRASH_SHRINKS_BY = 16
"""Each crash of a job's worker divides the company it is claimed with next time."""


class Standing(NamedTuple):
    """A job's row at the moment its holder comes back to it."""

    job_id: int
    token: str | None
    status: str
    seq: int
    finished_seq: int | None
    attempts: int
    max_attempts: int


class Leases(Changes):
    """The part of the store that workers use."""

    def claim(
        self, limit: int, *, worker: str, lease: float, versions: Sequence[int] | None = None
    ) -> list[Job]:
        if not self._anything_due():  # an idle worker takes no write lock
            return []
        with self.db.writing(durable=False) as conn:
            now = self.now()  # the lease runs from here, however long the lock took
            if conn.execute(SQL.paused).fetchone()[0]:
                return []
            rows = self._candidates(conn, limit, now, versions)
            if not rows:
                return []
            token, until = secrets.token_urlsafe(12), now + lease
            conn.execute(SQL.lease, (token, worker, now, until, listed(row[0] for row in rows)))
            held = Lease(token, worker, as_datetime(now), as_datetime(until))
            return jobs_of(conn, rows, held)

    def _anything_due(self) -> bool:
        now = self.now()
        with self.db.reading() as conn:
            return any(conn.execute(SQL.due_any, (p, now)).fetchone() for p in priorities(conn))

    def _candidates(
        self, conn: sqlite3.Connection, limit: int, now: float, versions: Sequence[int] | None
    ) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for level in priorities(conn):
            if len(rows) >= limit:
                break
            left = limit - len(rows)
            if versions is None:
                rows += conn.execute(SELECT_JOBS + SQL.due_at_priority, (level, now, left))
            else:
                which = (level, now, listed(versions), left)
                rows += conn.execute(SELECT_JOBS + SQL.due_at_priority_of, which)
        if not rows:
            return rows
        if not any(row[-1] for row in rows):
            return rows
        company, crashes = _company(rows[0], limit), rows[0][-1]
        return [r for r in rows if r[-1] == crashes and _company(r, limit) == company][:company]

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        loaded: list[Loaded | Unreadable | None] = []
        size = 0
        with self.db.reading() as conn:
            for row in _rows_to_load(conn, jobs):
                if isinstance(row, Unreadable) or row[2] is None:
                    loaded.append(row if isinstance(row, Unreadable) else None)
                    continue
                size += len(row[4]) + len(row[9] or "")
                if loaded and size > budget:
                    break
                loaded.append(_loaded(row))
        return loaded

    def finish(self, finishes: Sequence[Finish], apply: Apply | None = None) -> list[bool]:
        if not finishes:
            return []
        with self.db.writing(durable=False) as conn:
            now = self.now()
            if _finish_untouched(conn, finishes, now):
                good = {f.job.job_id for f in finishes}
                self._write_results(conn, finishes, apply, now)
            else:
                good = self._finish_one_by_one(conn, finishes, apply, now)
        self.wake()
        return [f.job.job_id in good for f in finishes]

    def _finish_one_by_one(
        self, conn: sqlite3.Connection, finishes: Sequence[Finish], apply: Apply | None, now: float
    ) -> set[int]:
        """For a batch of which some lost their lease, were overtaken or came before."""
        standing = _standing(conn, [f.job for f in finishes])
        held = [f for f in finishes if _holds(standing, f.job)]
        overtaken = [f.job.record for f in held if standing[f.job.job_id].seq > f.seq]
        born = _born(conn, overtaken)
        good = [f for f in held if f.seq >= born.get(f.job.record, 0)]
        self._write_results(conn, good, apply, now)
        conn.executemany(SQL.finish, [(f.seq, now, f.job.job_id) for f in held])
        conn.executemany(SQL.add_attempt, [_done(f, now) for f in held])
        repeated = {f.job.job_id for f in finishes if _was_finished(standing, f)}
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
            standing = _standing(conn, [f.job for f in failures])
            attempts = []
            for f in failures:
                if not _holds(standing, f.job):
                    ends.append(None)
                    continue
                row = standing[f.job.job_id]
                if row.seq > (f.job.claimed_seq or 0):  # a newer version starts anew
                    end, due, spent = Status.PENDING, now, 0
                elif f.retry_at is None:
                    end, due, spent = Status.FAILED, now, row.attempts
                else:
                    end, due, spent = Status.PENDING, f.retry_at, row.attempts
                _put_back(conn, f.job, end, due, spent, 0, f.error, now)
                outcome = Outcome.FAILED if end is Status.FAILED else Outcome.RETRY
                attempts.append(_attempt(f.job, outcome, f.worker, f.error, now))
                ends.append(end)
            conn.executemany(SQL.add_attempt, attempts)
        self.wake()
        return ends

    def release(self, jobs: Sequence[Job], *, error: str | None = None) -> list[bool]:
        with self.db.writing(durable=False) as conn:
            done = [
                conn.execute(SQL.release, (error, job.job_id, job.token)).rowcount == 1
                for job in jobs
            ]
        self.wake()
        return done

    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]:
        with self.db.writing(durable=False) as conn:
            standing = _standing(conn, jobs)
            held = [job for job in jobs if _holds(standing, job)]
            until = self.now() + lease
            conn.executemany(SQL.renew, [(until, job.job_id) for job in held])
        good = {job.job_id for job in held}
        return [job.job_id in good for job in jobs]

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        moments = []
        with self.db.reading() as conn:
            for level in priorities(conn):
                if versions is None:
                    row = conn.execute(SQL.next_scheduled, (level,)).fetchone()
                else:
                    which = (level, listed(versions))
                    row = conn.execute(SQL.next_scheduled_of, which).fetchone()
                moments += [row[0]] if row else []
            moments.append(conn.execute(SQL.next_expiry).fetchone()[0])
        return min((m for m in moments if m is not None), default=None)

    def any_expired(self) -> bool:
        with self.db.reading() as conn:
            soonest = conn.execute(SQL.next_expiry).fetchone()[0]
        return soonest is not None and soonest < self.now()

    def recover(self, *, threshold: float | None = None, limit: int = 1000) -> list[Job]:
        ended = []
        with self.db.writing(durable=False) as conn:
            now = self.now()
            attempts = []
            for job in jobs_of(conn, self._expired(conn, now, threshold, limit)):
                spent = job.attempts
                end = Status.PENDING
                if job.seq > (job.claimed_seq or 0):
                    spent = 0
                elif spent >= job.max_attempts:
                    end = Status.FAILED
                error = f"its worker stopped answering in attempt {job.attempts}"
                _put_back(conn, job, end, now, spent, 1, error, now)
                attempts.append(_attempt(job, Outcome.CRASHED, job.worker or "", error, now))
                ended.append(job.job_id)
            conn.executemany(SQL.add_attempt, attempts)
            rows = conn.execute(SELECT_JOBS + SQL.jobs_by_id, (listed(ended),)).fetchall()
            recovered = jobs_of(conn, rows)
        self.wake()
        return recovered

    def _expired(
        self, conn: sqlite3.Connection, now: float, threshold: float | None, limit: int
    ) -> list[tuple[Any, ...]]:
        if threshold is None:
            return conn.execute(SELECT_JOBS + SQL.expired, (now, limit)).fetchall()
        return conn.execute(SELECT_JOBS + SQL.stuck, (now, now - threshold, limit)).fetchall()


def _rows_to_load(
    conn: sqlite3.Connection, jobs: Sequence[Job]
) -> Iterator[tuple[Any, ...] | Unreadable]:
    """A row for each job; if one cannot be read at all, that one alone says so."""
    done = 0
    try:
        for row in conn.execute(SQL.load, (listed(j.job_id for j in jobs),)):
            yield row
            done += 1
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
        if len(jobs) == 1:
            yield Unreadable(str(error))
            return
        for job in jobs[done:]:
            yield from _rows_to_load(conn, [job])


def _loaded(row: tuple[Any, ...]) -> Loaded | Unreadable:
    op, seq, state, title, text, metadata, weight, updated_at, chunks, box = row
    try:
        return Loaded(
            Op(op), seq, state == "live", title, text,
            {} if metadata == "{}" else json.loads(metadata), weight, updated_at,
            unpack_chunks(chunks), box,
        )  # fmt: skip
    except (ValueError, TypeError, RecursionError) as error:
        return Unreadable(f"its metadata is not JSON: {error}")


def _company(row: JobRow, limit: int) -> int:
    """How many may be claimed together with a job: fewer after each crash of its worker, and
    none on the last try, so that only what kills a worker is buried."""
    crashes: int = row[-1]
    attempts, max_attempts = row[10], row[11]
    if crashes and attempts + 1 >= max_attempts:
        return 1
    shrunk: int = limit // CRASH_SHRINKS_BY**crashes
    return max(1, shrunk)


def priorities(conn: sqlite3.Connection) -> Iterator[int]:
    """The priorities that pending jobs have, highest first, each by one step in the index."""
    row = conn.execute(SQL.next_priority, (1 << 62,)).fetchone()
    while row:
        yield row[0]
        row = conn.execute(SQL.next_priority, row).fetchone()


def _finish_untouched(conn: sqlite3.Connection, finishes: Sequence[Finish], now: float) -> bool:
    """Finish a whole batch at once, with its attempts, if all of it is still as it was claimed;
    else nothing is changed."""
    token = finishes[0].job.token
    kinds: dict[tuple[int, int, int, str], list[int]] = {}
    for f in finishes:
        job = f.job
        if job.token != token or (f.change and f.change.seq != job.claimed_seq):
            return False
        kinds.setdefault((f.embedded, f.reused, f.tokens, f.worker), []).append(job.job_id)
    everything = listed(f.job.job_id for f in finishes)
    conn.execute("savepoint evervec_finish")
    done = conn.execute(SQL.finish_untouched, (now, everything, token)).rowcount
    if done == len(finishes):
        for counts, ids in kinds.items():
            conn.execute(SQL.add_done_attempts, (*counts, listed(ids)))
    else:
        conn.execute("rollback to evervec_finish")
    conn.execute("release evervec_finish")
    return done == len(finishes)


def _done(f: Finish, now: float) -> tuple[Any, ...]:
    job = f.job
    return (
        job.record, job.tenant, job.version, job.attempts, f.seq, _began(job), now, "done",
        f.embedded, f.reused, f.tokens, f.worker, None,
    )  # fmt: skip


def _attempt(
    job: Job, outcome: Outcome, worker: str, error: str | None, now: float
) -> tuple[Any, ...]:
    return (
        job.record, job.tenant, job.version, job.attempts, job.claimed_seq, _began(job), now,
        outcome.value, 0, 0, 0, worker, error,
    )  # fmt: skip


def _began(job: Job) -> float | None:
    return job.started_at.timestamp() if job.started_at else None


def _standing(conn: sqlite3.Connection, jobs: Sequence[Job]) -> dict[int, Standing]:
    rows = conn.execute(SQL.standing, (listed(job.job_id for job in jobs),))
    return {row[0]: Standing._make(row) for row in rows}


def _holds(standing: dict[int, Standing], job: Job) -> bool:
    row = standing.get(job.job_id)
    return (
        row is not None
        and row.status == Status.PROCESSING
        and job.token is not None
        and row.token == job.token
    )


def _was_finished(standing: dict[int, Standing], finish: Finish) -> bool:
    """The same finish came before: its answer was lost, not its work."""
    row = standing.get(finish.job.job_id)
    return (
        row is not None
        and row.status != Status.PROCESSING
        and finish.job.token is not None
        and row.token == finish.job.token
        and (row.finished_seq or -1) >= (finish.job.claimed_seq or 0)
    )


def _born(conn: sqlite3.Connection, records: list[int]) -> dict[int, int]:
    """From which seq on the records are what they are: what is older was deleted since."""
    if not records:
        return {}
    return dict(conn.execute(SQL.born, (listed(records),)).fetchall())


def _put_back(
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
