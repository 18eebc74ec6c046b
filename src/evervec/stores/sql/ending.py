"""How a claim ends: finished, failed, or recovered from a dead worker.

Only the holder of a job's token may end it. These decisions are the same for all engines; engines
differ in how many rows a statement takes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence, Set
from typing import Any

from evervec.model.jobs import Job, Outcome, Status
from evervec.model.records import Change
from evervec.queue.transitions import JobState, expire, fail
from evervec.stores.ledger import pack_chunks
from evervec.stores.sql.batches import retried
from evervec.stores.sql.boxes import Boxes
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.jobs import (
    JobRow,
    attempt_row,
    check_read,
    done_row,
    holds,
    standing_of,
    unread,
    was_finished,
)
from evervec.stores.values import Apply, ChunksMissing, Failure, Finish


class Ending(Boxes):
    """The part of the store that ends claims: finish, fail, and recover after a crash."""

    @abstractmethod
    def _finish_held(self, conn: Connection, held: Sequence[Finish], now: float) -> None:
        """Mark held jobs as done, or as pending where a newer change waits."""

    @abstractmethod
    def _reveal(self, conn: Connection, finishes: Sequence[Finish], now: float) -> None:
        """Make boxed and loaded records appear, unless a newer change came first."""

    @abstractmethod
    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> Set[int]:
        """Extend the leases of jobs whose token is still valid; returns their numbers."""

    def _check_read(self, finishes: Sequence[Finish]) -> None:
        """Reject a caller's own finishes that would lose a record that was never read."""
        if jobs := unread(finishes):
            kinds = self.listed({job.kind for job in jobs})
            with self.db.reading() as conn:
                rows = conn.execute(self.sql.loaded_kinds, (kinds,)).fetchall()
            check_read(jobs, {row[0] for row in rows})

    # about to be written
    @retried
    def renew(self, jobs: Sequence[Job], lease: float) -> list[bool]:
        with self.db.writing(durable=False) as conn:
            held = self._renew(conn, jobs, lease)
        return [job.job_id in held for job in jobs]

    @retried
    def fence(self, jobs: Sequence[Job], lease: float, above: int = 0) -> tuple[int, list[bool]]:
        # durable: the index keeps the number, so the store must never issue it again, and must
        # keep the entries marked as in doubt
        with self.db.writing(durable=True) as conn:
            if above:
                self.raise_counter(conn, above)
            held = self._renew(conn, jobs, lease)
            number = self.fresh_number(conn)
            conn.execute(self.sql.doubt_ledger, (number, self.listed(held)))
        return number, [job.job_id in held for job in jobs]

    # finished
    def _finish_rest(
        self, conn: Connection, finishes: Sequence[Finish], good: list[Finish], now: float
    ) -> set[int]:
        """Handle the other finishes: lost leases, overtaken jobs and repeated finishes. Those whose
        results may still be written are added to `good`. Returns the ids of the jobs that count as
        finished."""
        standing = self._standing(conn, [f.job for f in finishes])
        held = [f for f in finishes if holds(standing, f.job)]
        overtaken = [f.job.record for f in held if standing[f.job.job_id].seq > f.seq]
        born: dict[int, int] = {}
        if overtaken:  # a result from before the record's `born` seq belongs to a deleted record
            born = dict(conn.execute(self.sql.born, (self.listed(overtaken),)).fetchall())
        good += [f for f in held if f.seq >= born.get(f.job.record, 0)]
        if held:
            self._finish_held(conn, held, now)
            self._add_attempts(conn, [done_row(f, now) for f in held])
        repeated = {f.job.job_id for f in finishes if was_finished(standing, f)}
        return repeated.union(f.job.job_id for f in held)

    def _write_results(
        self, conn: Connection, held: Sequence[Finish], apply: Apply | None, now: float
    ) -> None:
        """Write points, ledger and records of held jobs."""
        if changes := [f.change for f in held if f.change]:
            self._write_points(conn, held, changes, apply)
        reveals = [f for f in held if f.reveal is not None or f.gone]
        if reveals:  # after the ledger, which a switch of versions locks
            self._reveal(conn, self._appearing(conn, reveals, now), now)
        if changes:
            versions = self.listed({f.job.version for f in held})
            conn.execute(self.sql.touch_versions, (now, versions))

    def _write_points(
        self,
        conn: Connection,
        held: Sequence[Finish],
        changes: Sequence[Change],
        apply: Apply | None,
    ) -> None:
        applied = apply(changes, conn) if apply is not None else None
        if applied is not None and applied.missing:
            raise ChunksMissing(applied.missing)  # rolls the transaction back
        kept, dropped = list[tuple[Any, ...]](), list[tuple[Any, ...]]()
        for f in held:
            if c := f.change:
                if f.chunks:
                    kept.append((c.record, c.version, c.seq, pack_chunks(f.chunks), f.fence))
                else:
                    dropped.append((c.record, c.version, c.seq))
        with self.counting(conn, [row[0] for row in (*kept, *dropped)]):
            self.each(conn, self.sql.put_ledger, sorted(kept))
            self.each(conn, self.sql.drop_ledger, sorted(dropped))

    # failed
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
                end = fail(standing[f.job.job_id], f.error, f.retry_at, now)
                back.append(_put_back_row(f.job, end))
                outcome = Outcome.FAILED if end.status is Status.FAILED else Outcome.RETRY
                attempts.append(attempt_row(f.job, outcome, f.worker, f.error, now))
                ends.append(end.status)
            self.each(conn, self.sql.put_back, back)
            self._add_attempts(conn, attempts)
        self.wake()
        return ends

    # recovered
    @retried
    def recover(
        self, *, threshold: float | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[Job]:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            back, attempts = [], []
            jobs = self.jobs_of(conn, self._expired(conn, now, threshold, tenant, limit))
            standing = self._written(conn, jobs)
            for job in jobs:
                end = expire(standing[job.job_id], now)
                back.append(_put_back_row(job, end))
                crashed = attempt_row(job, Outcome.CRASHED, job.worker or "", end.error, now)
                attempts.append(crashed)
            self.each(conn, self.sql.put_back, back)
            self._add_attempts(conn, attempts)
            ended = self.listed(row[-1] for row in back)
            rows = conn.execute(self.select_written + self.sql.jobs_by_id, (ended,)).fetchall()
            recovered = self.jobs_of(conn, rows)
        self.wake()
        return recovered

    def _expired(
        self,
        conn: Connection,
        now: float,
        threshold: float | None,
        tenant: str | None,
        limit: int,
    ) -> list[JobRow]:
        query, which = self.sql.expired, [now, tenant, limit]
        if threshold is not None:
            query, which = self.sql.stuck, [now, tenant, limit, now - threshold]
        rows: list[JobRow] = conn.execute(self.select_jobs + query, which).fetchall()
        return rows

    # rows
    def write_leases(self, conn: Connection, jobs: Sequence[Job]) -> None:
        """Copy leases from claims to the rows of their jobs, in engines that keep them apart."""

    def _standing(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, JobState]:
        """The current states of jobs, locked until the transaction ends."""
        self.write_leases(conn, jobs)
        return self._written(conn, jobs)

    def _written(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, JobState]:
        rows = conn.execute(self.sql.standing, (self.listed(job.job_id for job in jobs),))
        return dict(map(standing_of, rows))

    def _add_attempts(self, conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        cleaned = [(*row[:-1], row[-1] and row[-1].replace("\0", " ")) for row in rows]
        self.each(conn, self.sql.add_attempts, cleaned)


def _put_back_row(job: Job, end: JobState) -> tuple[Any, ...]:
    error = (end.error or "").replace("\0", " ")
    return (
        end.status.value, end.scheduled_for, end.attempts, end.crashes, error, end.completed_at,
        job.job_id,
    )  # fmt: skip
