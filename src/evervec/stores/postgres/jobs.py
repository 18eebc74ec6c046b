"""Jobs whose leases may be in the rows of their claims, and lists that no index covers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evervec.model.jobs import Job, Status
from evervec.model.reports import Stats
from evervec.stores.base.jobs import Backlog
from evervec.stores.postgres.block_walk import BlockWalk, tids
from evervec.stores.postgres.engine import SQL
from evervec.stores.sql import jobs
from evervec.stores.sql.engine import Connection, Engine
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.jobs import JobList, JobStats
from evervec.stores.sql.tenants import Tenants

_MANY_CHANGES = 10_000
"""so many changes of the counts are added to the totals when stats are read: no worker does it"""
_JOB_BLOCKS = 64
"""blocks of the jobs table that one statement purges"""
_JOBS_IN_BLOCK = 20
_ATTEMPTS_IN_BLOCK = 60
_FEW_BLOCKS = 4096
_SWEEPS = 60


class Jobs(jobs.Jobs):
    finds_latest_done = False  # an index of it would make each finish write to it
    _changes_seen = 0

    def __init__(self, engine: Engine, tenants: Tenants, writer: JobWriter) -> None:
        super().__init__(engine, tenants, writer)
        self._walks: dict[str, BlockWalk] = {}
        self._turns: dict[str, int] = {}
        self._purged_upto: dict[tuple[float, str | None, bool], tuple[str, int]] = {}

    def job_list(self, status: Status | None, id: str | None, *, in_order: bool) -> JobList:
        """With a redundant condition for a status, so that an index without the status is used."""
        listed = super().job_list(status, id, in_order=in_order)
        written = self.engine.select_written
        if status is Status.PENDING:
            ready = listed._replace(select=written + SQL.among_ready, owner="q.tenant")
            order = "q.later, q.tenant, q.rank, q.scheduled_for, q.job_id"
            return ready._replace(order=order) if in_order else ready
        if status is Status.PROCESSING:
            held = self.engine.select_jobs.replace("evervec.current_jobs", "evervec.held_jobs")
            return listed._replace(select=held)
        if status is Status.FAILED:
            order = "j.failed_at desc" if in_order else listed.order
            return listed._replace(
                select=written,
                order=order,
                owner="j.tenant",
                conditions=("j.failed_at is not null",),
            )
        return listed if status is None else listed._replace(select=written)

    def failed_count(self) -> int:
        (count,) = self.read_one(SQL.failed_count)
        return int(count)

    def backlog(self, tenant: str | None) -> Backlog:
        found = self.read_one(SQL.backlog, tenant)
        return Backlog._make(map(int, found))

    def stats(self, tenant: str | None) -> Stats:
        found = super().stats(tenant)
        while self._changes_seen >= _MANY_CHANGES:
            self._changes_seen -= max(self.fold_counts(), _MANY_CHANGES)
        return found

    def _job_stats(self, conn: Connection, tenant: str | None) -> JobStats:
        *found, self._changes_seen = conn.execute(SQL.job_stats, (tenant,)).fetchone()
        return JobStats._make(found)

    def fold_counts(self, limit: int = 10_000) -> int:
        with self.db.writing(durable=False) as conn:
            (folded,) = conn.execute(SQL.fold_job_changes, (limit,)).fetchone()
        return int(folded)

    def _locked(self, conn: Connection, tenant: str | None, job_id: int) -> Job:
        conn.execute(SQL.lock_job, (job_id,))
        conn.execute(SQL.lock_place, (job_id,))
        return super()._locked(conn, tenant, job_id)

    def locked_jobs(self, conn: Connection, job_ids: Sequence[int]) -> list[Job]:
        conn.execute(SQL.lock_jobs, (list(job_ids),))
        conn.execute(SQL.lock_places, (list(job_ids),))
        return super().locked_jobs(conn, job_ids)

    # purging
    def purge(
        self,
        status: Status,
        before: float,
        *,
        tenant: str | None = None,
        boxed: bool = False,
        limit: int = 1000,
    ) -> int:
        """No index finds done jobs: calls with the same arguments walk the table once, each from
        where the last one ended."""
        if status is not Status.DONE:
            return super().purge(status, before, tenant=tenant, boxed=boxed, limit=limit)
        asked, gone = (before, tenant, boxed), 0
        upto, block = self._purged_upto.pop(asked, ("", 0))
        for leaf, blocks in self._leaves("evervec.jobs"):
            if leaf < upto:
                continue
            upto, block = leaf, block if leaf == upto else 0
            query = SQL.purge_done.replace("{leaf}", leaf)
            while block < blocks and gone < limit:
                which = (*tids(block, block + _JOB_BLOCKS), *asked, limit - gone)
                gone += self.write(query, *which)
                if gone < limit:
                    block += _JOB_BLOCKS
            if gone >= limit:
                break
        if gone:
            self._purged_upto = {asked: (upto, block)}
        return gone

    def purge_ended(self, before: float, limit: int = 1000) -> tuple[int, int]:
        """Most attempts are in the rows of their jobs. A small table is walked in one sweep, a
        large one in about an hour of sweeps; partitions take turns."""
        jobs = attempts = gone = 0
        for leaf, *which in self._old("evervec.jobs", SQL.old_job, before, limit // _JOBS_IN_BLOCK):
            query = SQL.purge_old_jobs.replace("{leaf}", leaf)
            with self.db.writing(durable=False) as conn:
                ended, tried = conn.execute(query, (*which, before)).fetchone()
            jobs, attempts = jobs + ended, attempts + tried
            if jobs * 2 >= limit:
                break
        share = limit // _ATTEMPTS_IN_BLOCK
        for leaf, *which in self._old("evervec.attempts", SQL.old_attempt, before, share):
            gone += self.write(SQL.purge_old_attempts.replace("{leaf}", leaf), *which, before)
            if gone * 2 >= limit:
                break
        return jobs, attempts + gone

    def _leaves(self, table: str) -> list[tuple[str, int]]:
        """The tables that hold the rows, and their blocks: another process may just have split it."""
        with self.db.reading() as conn:
            return list(conn.execute(SQL.leaves, (table,)))

    def _old(
        self, table: str, query: str, before: float, share: int
    ) -> Iterator[tuple[str, str, str]]:
        """Of each table that holds rows, in turns, the next `share` blocks that begin with an old
        row, as places (ctid) from and before which they are."""
        leaves = self._leaves(table)
        turn = self._turns.get(table, 0)
        for number in range(turn, turn + len(leaves)):
            leaf, blocks = leaves[number % len(leaves)]
            walk = self._walks.setdefault(leaf, BlockWalk())
            few = max(blocks // _SWEEPS, _FEW_BLOCKS // len(leaves))
            for first, end in walk.pieces(blocks, few) if blocks else ():
                found = self.read_one(query.replace("{leaf}", leaf), *tids(first, end), before)
                if found is not None:
                    (block,) = found
                    walk.place = block + max(1, share)
                    self._turns[table] = number + 1
                    yield leaf, *tids(block, walk.place)
                    break

    def purge_history(self, before: float, limit: int = 1000) -> int:
        gone = 0
        with self.db.writing(durable=False) as conn:
            if found := self._forgotten(
                conn, before, limit
            ):  # a job may have been added just before the lock, but not after it
                records = [record for (record,) in conn.execute(SQL.still_without_job, (found,))]
                for (table,) in conn.execute(SQL.points_tables).fetchall():
                    conn.execute(f"delete from evervec.{table} where record = any ($1)", (records,))
                conn.execute(SQL.forget_removals, (records,))
                conn.execute(SQL.forget_ledger, (records,))
                gone += conn.execute(SQL.forget_records, (records,)).rowcount
        return gone
