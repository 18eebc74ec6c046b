"""Writes jobs: for changes, for records that are enqueued again, and for boxes.

Jobs of a change bring content. Enqueue, repair, backfill, a migration and a lost lease bring none:
what a record's jobs still have to read, a row or a box, must remain to be read, and
`transitions.debt` is the rule.

A boxed record must not appear before the serving version has its vectors, so only that version
has a job with the box. When the job is done the record appears, and the other versions get jobs
for it as for any other record. If the versions are switched in the meantime, the box is passed on
to the version that serves now.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from evervec.model.jobs import Op
from evervec.queue.transitions import Work, beside_box, debt, follows_box, takes_box
from evervec.stores.sql.engine import Connection, Part, columns
from evervec.stores.sql.job_rows import JobValues
from evervec.stores.sql.record_rows import NewJob, Row, pack_box
from evervec.stores.sql.retries import retried
from evervec.stores.values import Draft, Finish

_PLAIN = Draft("", "", b"")


class NextJob(NamedTuple):
    """A job to write for an existing record; it gets new numbers."""

    tenant: str
    version: int
    record: int
    op: Op
    box: str | None
    plan: Draft
    """priority, delay and attempts"""
    box_seq: int = 0
    """the seq of the add that filled the box"""


class _Rival(NamedTuple):
    """A version of a record's kind, with the record's job for it."""

    record: int
    seq: int
    """the record's seq"""
    version: int
    serves: bool
    op: str | None
    job_seq: int | None
    """the seq of the job or, where it has a box, of the box"""

    def wants(self, seq: int) -> bool:
        """Whether this version still has to open a box with that seq."""
        return self.serves and takes_box(self.seq, self.op, self.job_seq, seq)


class _StrayBox(NamedTuple):
    """A box whose version does not serve."""

    job_id: int
    record: int
    tenant: str
    seq: int
    priority: int
    due: float
    max_attempts: int
    box: str


class JobWriter(Part):
    """Writes the rows of jobs, in transactions of other parts."""

    def versions_of(self, db: Connection, kind: str) -> list[int]:
        """The versions that need a job for a change of this kind, the serving one first."""
        return [version for (version,) in db.execute(self.sql.targets, (kind,)).fetchall()]

    @abstractmethod
    def targets(self, db: Connection, kind: str) -> list[int]:
        """`versions_of` a kind that may be new. They are read inside the change's transaction, so a
        migration that begins a version can see which transactions do not know it yet. Where
        callers write concurrently, the first version of a new kind is created in a separate
        transaction, so that two callers need not wait for each other."""

    def lock_records(self, conn: Connection, records: Sequence[int]) -> None:
        """Lock records until the transaction ends, in engines with concurrent writers."""

    def put_jobs(
        self,
        db: Connection,
        tenant: str,
        targets: list[int],
        now: float,
        jobs: Sequence[NewJob],
        *,
        are_first: bool = False,
    ) -> None:
        """Write jobs for those versions; a job with a box only for the first version. `are_first`:
        this transaction has inserted their records, so these have no jobs yet."""
        values, default = list[JobValues](), self.engine.max_attempts
        for row, op, box in sorted(jobs, key=lambda job: job[0].record):
            draft = row.draft or _PLAIN
            due, attempts = now + draft.delay, draft.max_attempts or default
            box_seq = None if box is None else row.box_seq or row.seq
            reached = targets[:1] if op is Op.OPEN else targets  # the serving version opens it
            for job_id, version in zip(row.job_ids, reached, strict=False):
                values.append(
                    JobValues(
                        job_id, row.record, version, op.value, draft.priority, due, row.seq,
                        attempts, box, box_seq, draft.trace,
                    )
                )  # fmt: skip
        if values and are_first:
            self.write_first_jobs(db, tenant, now, values)
        elif values:
            self.write_jobs(db, tenant, now, values)

    def write_first_jobs(
        self, db: Connection, tenant: str, now: float, jobs: list[JobValues]
    ) -> None:
        """Insert jobs of records that have none, in engines where that is faster."""
        self.write_jobs(db, tenant, now, jobs)

    def write_jobs(self, db: Connection, tenant: str, now: float, jobs: list[JobValues]) -> None:
        """Insert jobs, or update the record's existing ones."""
        db.execute(self.sql.put_jobs, (tenant, now, *columns(jobs)))

    def put_next(self, conn: Connection, jobs: Sequence[NextJob], now: float) -> None:
        """Write jobs for records whose rows this transaction has locked."""
        numbers = self.engine.numbers(conn, 2 * len(jobs))
        for (tenant, version), group in _by_version(jobs):
            rows = list[NewJob]()
            for job in group:
                row = Row("", record=job.record, draft=job.plan, box_seq=job.box_seq)
                row.take(numbers, 1)
                rows.append((row, job.op, job.box))
            self.put_jobs(conn, tenant, [version], now, rows)

    # debts
    def with_debts(
        self, conn: Connection, jobs: Sequence[NewJob], *, is_loaded: bool = False
    ) -> list[NewJob]:
        """Add the debts of their records to jobs that bring no content. Call it after the records
        are locked."""
        records = self.engine.listed({row.record for row, _, _ in jobs})
        owed: dict[int, list[Work]] = defaultdict(list)
        for record, op, box, box_seq in conn.execute(self.sql.owed, (records,)).fetchall():
            owed[record].append(Work(Op(op), box, box_seq))
        found = list[NewJob]()
        for row, asked, _ in jobs:
            op, box, row.box_seq = debt(asked, owed.get(row.record, ()), is_loaded=is_loaded)
            found.append((row, op, box))
        return found

    def put_enqueued(
        self,
        conn: Connection,
        tenant: str,
        targets: list[int],
        now: float,
        jobs: list[NewJob],
        *,
        is_loaded: bool,
    ) -> None:
        """Write jobs with their debts. Only the serving version gets a box; `beside_box` decides
        what the other versions get."""
        owing = self.with_debts(conn, jobs, is_loaded=is_loaded)
        self.put_jobs(conn, tenant, targets, now, owing)
        if len(targets) > 1:
            beside = [
                (replace(row, job_ids=row.job_ids[1:]), op, None)
                for (row, asked, _), (_, op_owed, _) in zip(jobs, owing, strict=True)
                if op_owed is Op.OPEN and (op := beside_box(asked))
            ]
            self.put_jobs(conn, tenant, targets[1:], now, beside)

    def put_again(
        self,
        conn: Connection,
        tenant: str,
        kind: str,
        version: int,
        now: float,
        jobs: list[NewJob],
    ) -> None:
        """Write jobs for records that a version embeds again. A row that is read again may have
        changed, so all versions of the record read it again. Only the serving version gets a
        box."""
        again, read = list[NewJob](), list[NewJob]()
        targets = self.versions_of(conn, kind)
        for asked, job in zip(jobs, self.with_debts(conn, jobs), strict=True):
            _, op, _ = job
            if op is Op.OPEN and version != targets[0]:
                again.append(asked)
            else:
                (read if op is Op.LOAD else again).append(job)
        for versions, group in (([version], again), (targets, read)):
            numbers = self.engine.numbers(conn, len(group) * (1 + len(versions)))
            for row, _, _ in group:
                row.take(numbers, len(versions))
            self.put_jobs(conn, tenant, versions, now, group)

    # boxes
    def appearing(
        self, conn: Connection, finishes: Sequence[Finish], now: float
    ) -> Sequence[Finish]:
        """The finishes whose records appear now: loaded records, and boxed ones of serving
        versions. The jobs that the other versions need next are enqueued, and what these indexed
        while the box waited counts as older than the box, whatever its number."""
        boxed = [f for f in finishes if f.reveal is not None and f.reveal.boxed]
        if not boxed:
            return finishes
        rivals = self._rivals(conn, [f.job.record for f in boxed])
        jobs, elsewhere, outdated = [], set[int](), list[tuple[int, int, int]]()
        for f in boxed:
            job, draft = f.job, f.reveal
            assert draft is not None
            plan = Draft("", "", b"", priority=job.priority, max_attempts=job.max_attempts)
            versions = rivals[job.record]
            if any(v.serves and v.version == job.version for v in versions):
                beside = [v for v in versions if v.version != job.version]
                others = [v.version for v in beside if follows_box(v.op, v.job_seq, f.record_seq)]
                op, box = Op.EMBED, None
                outdated += [
                    (v.record, v.version, f.record_seq) for v in beside if v.seq <= f.record_seq
                ]
            else:
                elsewhere.add(job.job_id)
                others = [v.version for v in versions if v.wants(f.record_seq)]
                op, box = Op.OPEN, pack_box(draft, draft.created_at, draft.updated_at)
            jobs += [
                NextJob(job.tenant, other, job.record, op, box, plan, f.record_seq)
                for other in others
            ]
        if jobs:
            self.put_next(conn, jobs, now)
        # after the jobs: every finish locks them first
        self.engine.each(conn, self.sql.outdate_ledger, sorted(outdated))
        return [f for f in finishes if f.job.job_id not in elsewhere]

    def pass_all_boxes_on(self) -> None:
        while self.pass_boxes_on():
            pass

    @retried
    def pass_boxes_on(self, limit: int = 1000) -> int:
        """Pass boxes of other versions on to the serving ones, at most `limit`; returns how
        many."""
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            records = {stray.record for stray in self._stray_boxes(conn, limit)}
            if not records:
                return 0
            self.lock_records(conn, sorted(records))
            # read again: some may have changed before they were locked
            found = [stray for stray in self._stray_boxes(conn, limit) if stray.record in records]
            rivals = self._rivals(conn, records)
            jobs = []
            for stray in found:
                plan = Draft("", "", b"", priority=stray.priority,
                             delay=max(0.0, stray.due - now),
                             max_attempts=stray.max_attempts)  # fmt: skip
                jobs += [
                    NextJob(stray.tenant, rival.version, stray.record, Op.OPEN, stray.box, plan,
                            stray.seq)
                    for rival in rivals[stray.record]
                    if rival.wants(stray.seq)
                ]  # fmt: skip
            dropped = self.engine.listed(stray.job_id for stray in found)
            conn.execute(self.sql.drop_jobs, (dropped,))
            if jobs:
                self.put_next(conn, jobs, now)
        self.engine.wake()
        return len(records)

    def _stray_boxes(self, conn: Connection, limit: int) -> list[_StrayBox]:
        rows = conn.execute(self.sql.stray_boxes, (limit,)).fetchall()
        return list(map(_StrayBox._make, rows))

    def _rivals(self, conn: Connection, records: Iterable[int]) -> dict[int, list[_Rival]]:
        found: dict[int, list[_Rival]] = defaultdict(list)
        for row in conn.execute(self.sql.rivals, (self.engine.listed(records),)).fetchall():
            rival = _Rival._make(row)
            found[rival.record].append(rival)
        return found


def _by_version(jobs: Iterable[NextJob]) -> list[tuple[tuple[str, int], list[NextJob]]]:
    """Jobs grouped by tenant and version, always in the same order."""
    groups: dict[tuple[str, int], list[NextJob]] = defaultdict(list)
    for job in jobs:
        groups[job.tenant, job.version].append(job)
    return sorted(groups.items(), key=lambda group: group[0])
