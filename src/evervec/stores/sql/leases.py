"""Leases: claimed, renewed, and ended by a finish, a failure, a release or a crash.

Only the holder of a job's token may end its lease. A job's row is changed only if the token is
still valid; from then on it is locked until the transaction ends. A finish and the points that it
wrote commit together.
"""

from __future__ import annotations

import secrets
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Collection, Sequence, Set
from typing import Any, NamedTuple

from evervec.errors import IndexMismatch
from evervec.model.jobs import Job, Outcome, Status
from evervec.queue.transitions import JobState, before_box, expire, fail
from evervec.stores.notes import INDEX
from evervec.stores.sql.changes import Changes
from evervec.stores.sql.engine import Connection, Engine, Part
from evervec.stores.sql.job_rows import (
    JobRow,
    Lease,
    attempt_row,
    check_read,
    clean,
    holds,
    leased_jobs,
    loaded,
    must_last,
    put_back_row,
    standing_of,
    together,
    unread,
    was_finished,
)
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.jobs import EVERYONE
from evervec.stores.sql.results import Results
from evervec.stores.sql.retries import retried
from evervec.stores.sql.tenants import Tenants
from evervec.stores.sql.turns import Turns
from evervec.stores.values import Apply, Failure, Finish, Loaded, Unreadable

_ANY = 1 << 62


class Due(NamedTuple):
    """Which jobs a claim looks for."""

    now: float
    skipped: frozenset[str]
    """tenants"""
    barred: list[int] | None
    """versions; None: no version is"""
    crashes: int
    """jobs with more crashes are left out"""


class Leases(Part):
    """The part of the store that workers use."""

    def __init__(
        self, engine: Engine, tenants: Tenants, writer: JobWriter, changes: Changes
    ) -> None:
        super().__init__(engine)
        self._writer = writer
        self._results = Results(engine, tenants, writer, changes)
        self.turns = Turns()

    # claimed
    def claim(
        self,
        limit: int,
        *,
        worker: str,
        lease: float,
        versions: Sequence[int] | None = None,
        suspects: bool = True,
    ) -> list[Job]:
        """For engines with a single writer, which have `_anything_due` and `_due`: jobs do not change
        after they are read."""
        with self.db.reading() as conn:  # an idle worker takes no write lock
            now = self.engine.now()
            skipped = self.held_back(conn, now)
            if EVERYONE in skipped or not self._anything_due(conn, now, skipped):
                return []
        with self.db.writing(durable=False) as conn:
            now = self.engine.now()  # the lease starts after the lock is taken
            skipped = self.held_back(conn, now)
            if EVERYONE in skipped:
                return []
            barred = self.barred(conn, versions)
            wanted = Due(now, skipped, barred, _ANY if suspects else 0)
            held = Lease(secrets.token_urlsafe(12), worker, now, now + lease)
            return self._lease(conn, self._due(conn, limit, wanted), held, limit)

    def claim_chosen(
        self, jobs: Sequence[int], *, tenant: str, worker: str, lease: float
    ) -> list[Job]:
        with self.db.writing(durable=False) as conn:
            now = self.engine.now()
            if not self.held_back(conn, now).isdisjoint((tenant, EVERYONE)):
                return []
            chosen = (self.engine.listed(jobs), tenant, now)
            rows = conn.execute(self.select_due + self.sql.due_chosen, chosen).fetchall()
            held = Lease(secrets.token_urlsafe(12), worker, now, now + lease)
            return self._lease(conn, rows, held, len(rows))

    def _lease(
        self, conn: Connection, rows: Sequence[JobRow], held: Lease, limit: int
    ) -> list[Job]:
        """Lease the jobs of these rows."""
        if not rows:
            return []
        names = self.engine.version_names(conn, rows)
        jobs = together(leased_jobs(names, rows, held), limit)
        conn.execute(self.sql.lease, (*held, self.engine.listed(job.job_id for job in jobs)))
        return jobs

    @property
    def select_due(self) -> str:
        return f"select {self.sql.claim_columns}\n"

    def _anything_due(self, conn: Connection, now: float, skipped: frozenset[str]) -> bool:
        """Whether a claim may find a job, of any version, of tenants that are not skipped."""
        raise NotImplementedError

    def _due(self, conn: Connection, limit: int, wanted: Due) -> list[JobRow]:
        """The due jobs of the tenants whose turn it is, at most `limit`."""
        raise NotImplementedError

    def held_back(self, conn: Connection, now: float) -> frozenset[str]:
        """The paused tenants, and those that have used up their daily quota."""
        rows = conn.execute(self.sql.held_back, (now,)).fetchall()
        return frozenset(tenant for (tenant,) in rows)

    def weights(self, conn: Connection) -> dict[str, int]:
        """The weights of tenants with a weight other than 1."""
        return dict(conn.execute(self.sql.weights).fetchall())

    def barred(self, conn: Connection, versions: Collection[int] | None) -> list[int] | None:
        """The versions whose jobs this process does not claim; None: it claims all jobs."""
        return None if versions is None else self.engine.catalogue(conn).barred(versions)

    def next_due(self, versions: Sequence[int] | None = None) -> float | None:
        which = None if versions is None else self.engine.listed(versions)
        with self.db.reading() as conn:
            moments = [
                *conn.execute(self.sql.next_scheduled, (which,)).fetchone(),
                *conn.execute(self.sql.next_expiry, (0.0,)).fetchone(),
            ]
        return min((m for m in moments if m is not None), default=None)

    def load(self, jobs: Sequence[Job], budget: int) -> list[Loaded | Unreadable | None]:
        wanted = ([job.job_id for job in jobs], list(range(1, len(jobs) + 1)), budget)
        return list(map(loaded, self._rows_to_load(*wanted)))

    def _rows_to_load(self, *wanted: Any) -> list[tuple[Any, ...]]:
        return self.read(self.sql.load, *wanted)

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
                self.engine.raise_counter(conn, above)
            held = self._renew(conn, jobs, lease)
            number = self.engine.fresh_number(conn)
            conn.execute(self.sql.doubt_ledger, (number, self.engine.listed(held)))
        return number, [job.job_id in held for job in jobs]

    def _renew(self, conn: Connection, jobs: Sequence[Job], lease: float) -> set[int]:
        """Extend the leases of jobs whose token is still valid; returns their numbers."""
        until = self.engine.now() + lease
        return self.held_ids(conn, self.sql.renew, (until,), jobs)

    def held_ids(
        self, conn: Connection, query: str, values: tuple[Any, ...], jobs: Sequence[Job]
    ) -> set[int]:
        """Change jobs whose token is still valid; returns their numbers."""
        ordered = sorted(jobs, key=lambda job: job.job_id)
        held = ([job.job_id for job in ordered], [job.token for job in ordered])
        return {job_id for (job_id,) in conn.execute(query, (*values, *held)).fetchall()}

    # finished
    @retried
    def finish(
        self,
        finishes: Sequence[Finish],
        apply: Apply | None = None,
        generation: int | None = None,
    ) -> list[bool]:
        if not finishes:
            return []
        with self.db.writing(durable=must_last(finishes)) as conn:
            self._check_read(conn, finishes)
            reveals = [f.job.record for f in finishes if f.reveal is not None or f.gone]
            if reveals:  # before their jobs, as a save locks them
                self._writer.lock_records(conn, reveals)
            done = self._finish_untouched(conn, finishes)
            rest, good = list[Finish](), list(finishes)
            if len(done) < len(finishes):
                rest = [f for f in finishes if f.job.job_id not in done]
                good = [f for f in finishes if f.job.job_id in done]
            if rest:
                done |= self._finish_rest(conn, rest, good, self.engine.moment(conn))
            self._results.keep(conn, good, apply)
            if generation is not None:
                self._check_generation(conn, generation)
            if versions := {f.job.version for f in good if f.change}:
                self.touch_versions(conn, versions)
        if rest:
            self.engine.wake()
        else:
            self.engine.tell()
        return [f.job.job_id in done for f in finishes]

    def _check_generation(self, conn: Connection, mine: int) -> None:
        """Reject points that went to an index which the store has left: their ledger would say that
        the present one has them. Call it after the ledger is written, see `await_finishes`."""
        noted = conn.execute(self.sql.note, (INDEX.name,)).fetchone()
        now = INDEX.parse(noted[0]).generation if noted else 0
        if now != mine:
            raise IndexMismatch(
                f"another process moved the vectors of {self.db.name} to another index: open the "
                "store again"
            )

    def _check_read(self, conn: Connection, finishes: Sequence[Finish]) -> None:
        """Reject a caller's own finishes that would lose a record that was never read."""
        if jobs := unread(finishes):
            kinds = self.engine.listed({job.kind for job in jobs})
            found = conn.execute(self.sql.loaded_kinds, (kinds,)).fetchall()
            check_read(jobs, {kind for (kind,) in found})

    def _finish_untouched(self, conn: Connection, finishes: Sequence[Finish]) -> set[int]:
        """Finish the jobs, nearly all, that did not change since their claim; returns them."""
        batches: dict[str, list[Finish]] = defaultdict(list)
        for f in finishes:
            if f.job.token is not None and f.seq == f.job.claimed_seq:
                batches[f.job.token].append(f)
        done: set[int] = set()
        for token, batch in sorted(batches.items()):
            done |= self._finish_claimed(conn, token, batch)
        return done

    @abstractmethod
    def _finish_claimed(self, conn: Connection, token: str, finishes: Sequence[Finish]) -> set[int]:
        """Finish those jobs that did not change since they were claimed with this token."""

    def _finish_rest(
        self, conn: Connection, finishes: Sequence[Finish], good: list[Finish], now: float
    ) -> set[int]:
        """Handle the other finishes: lost leases, overtaken jobs and repeated finishes. Those whose
        results may still be written are added to `good`. Returns the ids of the jobs that count as
        finished."""
        standing = self._standing(conn, [f.job for f in finishes])
        held = [f for f in finishes if holds(standing, f.job)]
        overtaken = [f.job.record for f in held if standing[f.job.job_id].seq > f.seq]
        records: dict[int, tuple[int, int]] = {}
        if overtaken:  # a result from before the record's `born` seq belongs to a deleted record
            found = conn.execute(self.sql.born, (self.engine.listed(overtaken),)).fetchall()
            records = {record: (born, seq) for record, born, seq in found}
        for f in held:
            born, seq = records.get(f.job.record, (0, 0))
            if f.seq >= born and not before_box(f.text_seq, seq, f.seq):
                good.append(f)
        if held:
            self.engine.each(conn, self.sql.finish, [(now, f.seq, f.job.job_id) for f in held])
            self.engine.each(
                conn,
                self.sql.add_attempts,
                [attempt_row(f.job, Outcome.DONE, f.worker, None, now, f) for f in held],
            )
        repeated = {f.job.job_id for f in finishes if was_finished(standing, f)}
        return repeated.union(f.job.job_id for f in held)

    def touch_versions(self, conn: Connection, versions: Set[int]) -> None:
        """Note when the versions were last written to."""
        moment = self.engine.moment(conn)
        conn.execute(self.sql.touch_versions, (moment, self.engine.listed(versions)))

    # failed
    @retried
    def fail(self, failures: Sequence[Failure]) -> list[Status | None]:
        ends: list[Status | None] = []
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            standing = self._standing(conn, [f.job for f in failures])
            back, attempts = [], []
            for f in failures:
                if not holds(standing, f.job):
                    ends.append(None)
                    continue
                end = fail(standing[f.job.job_id], f.error, f.retry_at, now)
                back.append(put_back_row(f.job, end))
                outcome = Outcome.FAILED if end.status is Status.FAILED else Outcome.RETRY
                attempts.append(attempt_row(f.job, outcome, f.worker, f.error, now))
                ends.append(end.status)
            self.engine.each(conn, self.sql.put_back, back)
            self.engine.each(conn, self.sql.add_attempts, attempts)
        self.engine.wake()
        return ends

    @retried
    def release(
        self, jobs: Sequence[Job], *, error: str | None = None, due: float | None = None
    ) -> list[bool]:
        said = None if error is None else clean(error)
        with self.db.writing(durable=False) as conn:
            done = self._release(conn, jobs, said, due)
        self.engine.wake()
        return [job.job_id in done for job in jobs]

    def _release(
        self, conn: Connection, jobs: Sequence[Job], error: str | None, due: float | None
    ) -> set[int]:
        """Return jobs whose token is still valid to the queue; returns their numbers."""
        self.write_leases(conn, jobs)
        return self.held_ids(conn, self.sql.release, (error, due), jobs)

    # recovered from a worker that crashed
    def look_for_expired(self) -> bool:
        (soonest,) = self.read_one(self.sql.next_expiry, 0.0)
        return soonest is not None and soonest < self.engine.now()

    @retried
    def recover(
        self, *, threshold: float | None = None, tenant: str | None = None, limit: int = 1000
    ) -> list[Job]:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            back, attempts = [], []
            jobs = self.engine.jobs_of(conn, self._expired(conn, now, threshold, tenant, limit))
            standing = self._written(conn, jobs)
            for job in jobs:
                end = expire(standing[job.job_id], now)
                back.append(put_back_row(job, end))
                crashed = attempt_row(job, Outcome.CRASHED, job.worker or "", end.error, now)
                attempts.append(crashed)
            self.engine.each(conn, self.sql.put_back, back)
            self.engine.each(conn, self.sql.add_attempts, attempts)
            ended = self.engine.listed(job.job_id for job in jobs)
            query = self.engine.select_written + self.sql.jobs_by_id
            recovered = self.engine.jobs_of(conn, conn.execute(query, (ended,)).fetchall())
        self.engine.wake()
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
        rows: list[JobRow] = conn.execute(self.engine.select_jobs + query, which).fetchall()
        return rows

    # rows
    def write_leases(self, conn: Connection, jobs: Sequence[Job]) -> None:
        """Copy leases from claims to the rows of their jobs, in engines that keep them apart."""

    def _standing(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, JobState]:
        """The current states of jobs, locked until the transaction ends."""
        self.write_leases(conn, jobs)
        return self._written(conn, jobs)

    def _written(self, conn: Connection, jobs: Sequence[Job]) -> dict[int, JobState]:
        wanted = self.engine.listed(job.job_id for job in jobs)
        return dict(map(standing_of, conn.execute(self.sql.standing, (wanted,)).fetchall()))
