"""Jobs that are enqueued again, with their debts.

Enqueue, repair, backfill, a migration and a lost lease bring no content. What a record's jobs still
have to read, a row or a box, must remain to be read: `transitions.debt` is the rule.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from evervec.model.jobs import Op
from evervec.queue.transitions import Work, beside_box, debt, to_reopen
from evervec.stores.sql.batches import retried
from evervec.stores.sql.boxes import Boxes
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.records import NewJob, Row
from evervec.stores.values import Draft


class Debts(Boxes):
    """The part of the store that enqueues records again."""

    def with_debts(
        self, conn: Connection, jobs: Sequence[NewJob], *, is_loaded: bool = False
    ) -> list[NewJob]:
        """Add the debts of their records to jobs that bring no content. Call it after the records
        are locked."""
        records = self.listed({row.record for row, _, _ in jobs})
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
        self._put_jobs(conn, tenant, targets, now, owing)
        if len(targets) > 1:
            beside = [
                (replace(row, job_ids=row.job_ids[1:]), op, None)
                for (row, asked, _), (_, op_owed, _) in zip(jobs, owing, strict=True)
                if op_owed is Op.OPEN and (op := beside_box(asked))
            ]
            self._put_jobs(conn, tenant, targets[1:], now, beside)

    @retried
    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.moment(conn)
            self.lock_records(conn, records)
            # a version that was retired in the meantime gets no jobs: no worker would do them
            found = conn.execute(self.sql.reopen, (self.listed(records), version)).fetchall()
            alike: dict[tuple[str, str], list[NewJob]] = defaultdict(list)
            for record, tenant, kind, state in found:
                row = Row("", record=record, draft=Draft("", "", b"", priority=priority))
                alike[tenant, kind].append((row, to_reopen(state), None))
            for (tenant, kind), jobs in alike.items():
                self._reopen(conn, tenant, kind, version, now, jobs)
            if forget:
                ledgers = [(record, version, 1 << 62) for record, *_ in found]
                with self.counting(conn, [row[0] for row in ledgers]):
                    self.each(conn, self.sql.drop_ledger, ledgers)
        self.wake()
        return len(found)

    def _reopen(
        self,
        conn: Connection,
        tenant: str,
        kind: str,
        version: int,
        now: float,
        jobs: list[NewJob],
    ) -> None:
        """A row that is read again may have changed, so all versions of the record read it again.
        Only the serving version gets a box."""
        again, read = list[NewJob](), list[NewJob]()
        targets = [row[0] for row in conn.execute(self.sql.targets, (kind,)).fetchall()]
        for asked, job in zip(jobs, self.with_debts(conn, jobs), strict=True):
            if job[1] is Op.OPEN and version != targets[0]:
                again.append(asked)
            else:
                (read if job[1] is Op.LOAD else again).append(job)
        for versions, group in (([version], again), (targets, read)):
            numbers = self.numbers(conn, len(group) * (1 + len(versions)))
            for row, _, _ in group:
                row.take(numbers, len(versions))
            self._put_jobs(conn, tenant, versions, now, group)
