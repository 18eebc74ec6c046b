"""Boxed records: only the serving version opens them.

A boxed record must not appear before the serving version has its vectors, so only that version
has a job with the box. When the job is done the record appears, and the other versions get jobs
for it as for any other record. If the versions are switched in the meantime, the box is passed on
to the version that serves now.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from evervec.model.jobs import Op
from evervec.queue.transitions import follows_box, takes_box
from evervec.stores.sql.batches import retried
from evervec.stores.sql.engine import Connection, Engine
from evervec.stores.sql.records import NewJob, Row, pack_box
from evervec.stores.values import Draft, Finish


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


class Boxes(Engine):
    """The part of the store that makes boxed records appear."""

    @abstractmethod
    def numbers(self, conn: Connection, count: int) -> Iterator[int]:
        """`count` new numbers, in ascending order."""

    @abstractmethod
    def _put_jobs(
        self,
        db: Connection,
        tenant: str,
        targets: list[int],
        now: float,
        jobs: Sequence[NewJob],
    ) -> None:
        """Write jobs for those versions; a job with a box only for the first version."""

    def put_next(self, conn: Connection, jobs: Sequence[NextJob], now: float) -> None:
        """Write jobs for records whose rows this transaction has locked."""
        numbers = self.numbers(conn, 2 * len(jobs))
        for (tenant, version), group in _by_version(jobs):
            rows = list[NewJob]()
            for job in group:
                row = Row("", record=job.record, draft=job.plan, box_seq=job.box_seq)
                row.take(numbers, 1)
                rows.append((row, job.op, job.box))
            self._put_jobs(conn, tenant, [version], now, rows)

    def lock_records(self, conn: Connection, records: Sequence[int]) -> None:
        """Lock records until the transaction ends, in engines with concurrent writers."""

    def _appearing(
        self, conn: Connection, finishes: Sequence[Finish], now: float
    ) -> Sequence[Finish]:
        """The finishes whose records appear now: loaded records, and boxed ones of serving
        versions. The jobs that the other versions need next are enqueued."""
        boxed = [f for f in finishes if f.reveal is not None and f.reveal.boxed]
        if not boxed:
            return finishes
        rivals = self._rivals(conn, [f.job.record for f in boxed])
        jobs, elsewhere = [], set[int]()
        for f in boxed:
            job, draft = f.job, f.reveal
            assert draft is not None
            plan = Draft("", "", b"", priority=job.priority, max_attempts=job.max_attempts)
            versions = rivals[job.record]
            if any(v.serves and v.version == job.version for v in versions):
                others = [
                    v.version
                    for v in versions
                    if v.version != job.version and follows_box(v.op, v.job_seq, f.record_seq)
                ]
                op, box = Op.EMBED, None
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
        return [f for f in finishes if f.job.job_id not in elsewhere]

    @retried
    def pass_boxes_on(self, limit: int = 1000) -> int:
        """Pass boxes of other versions on to the serving ones, at most `limit`; returns how
        many."""
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            records = [row[1] for row in conn.execute(self.sql.stray_boxes, (limit,)).fetchall()]
            if not records:
                return 0
            self.lock_records(conn, records)
            # read again: some may have changed before they were locked
            rows = conn.execute(self.sql.stray_boxes, (limit,)).fetchall()
            found = [row for row in rows if row[1] in set(records)]
            rivals = self._rivals(conn, records)
            jobs = []
            for _, record, tenant, seq, priority, due, attempts, box in found:
                plan = Draft("", "", b"", priority=priority, delay=max(0.0, due - now),
                             max_attempts=attempts)  # fmt: skip
                jobs += [
                    NextJob(tenant, rival.version, record, Op.OPEN, box, plan, seq)
                    for rival in rivals[record]
                    if rival.wants(seq)
                ]
            conn.execute(self.sql.drop_jobs, (self.listed(row[0] for row in found),))
            if jobs:
                self.put_next(conn, jobs, now)
        self.wake()
        return len(records)

    def _rivals(self, conn: Connection, records: Iterable[int]) -> dict[int, list[_Rival]]:
        found: dict[int, list[_Rival]] = defaultdict(list)
        for row in conn.execute(self.sql.rivals, (self.listed(records),)).fetchall():
            rival = _Rival._make(row)
            found[rival.record].append(rival)
        return found


def _by_version(jobs: Iterable[NextJob]) -> list[tuple[tuple[str, int], list[NextJob]]]:
    """Jobs grouped by tenant and version, always in the same order."""
    groups: dict[tuple[str, int], list[NextJob]] = defaultdict(list)
    for job in jobs:
        groups[job.tenant, job.version].append(job)
    return sorted(groups.items(), key=lambda group: group[0])
