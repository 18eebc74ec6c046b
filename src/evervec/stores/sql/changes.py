"""Saving and deleting: a record and its job in one transaction.

The rows of a batch are compared with the stored rows, numbered, and then written with one
statement per table. A number is taken only after its row is locked, so of two changes of a record
the later one has the larger number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from evervec.model.jobs import Op, Ticket
from evervec.stores.sql.batches import Batches, columns, retried
from evervec.stores.sql.debts import Debts
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.records import (
    NewJob,
    Row,
    Writes,
    compare,
    number,
    stub_of,
    tickets_of_deletes,
)
from evervec.stores.sql.tenants import Tenants
from evervec.stores.values import Draft

Values = tuple[Any, ...]
_PLAIN = Draft("", "", b"")


class Changes(Batches, Debts, Tenants):
    """The part of the store that saves and deletes records."""

    @retried
    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            self.check_kind(db, tenant, kind)
            targets = self._targets(db, kind)
            now = self.moment(db)
            tickets: dict[int, Ticket] = {}
            places = list(range(len(drafts)))
            while places:
                chosen = [drafts[place] for place in places]
                made, lost = self._save(db, tenant, kind, chosen, targets, now)
                tickets.update(zip(places, made, strict=True))
                # another transaction has just inserted these: compare with its rows
                places = [place for place in places if drafts[place].id in lost]
            self.announce(db, conn)
        if all(ticket.is_new for ticket in tickets.values()):
            self.tell()
        else:
            self.wake()
        return [tickets[place] for place in range(len(drafts))]

    def _save(
        self,
        db: Connection,
        tenant: str,
        kind: str,
        drafts: Sequence[Draft],
        targets: list[int],
        now: float,
    ) -> tuple[list[Ticket], set[str]]:
        """Tickets, and the ids of new records that another transaction inserted first."""
        rows = self._known(db, tenant, kind, {d.id for d in drafts}, targets[0])
        self.check_room(db, tenant, drafts, rows)
        steps = compare(drafts, rows)
        count = sum(verdict == "changed" for _, _, verdict in steps) * (1 + len(targets))
        numbers = self.take_numbers(db, count) if count else iter(())
        tickets = number(kind, steps, numbers, len(targets))
        return tickets, self._write(db, tenant, kind, rows.values(), targets, now)

    @retried
    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: int | None = None,
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.moment(db)
            targets = [row[0] for row in db.execute(self.sql.targets, (kind,))]
            rows = self._known(db, tenant, kind, set(ids), targets[0]) if targets else {}
            gone = [r for r in rows.values() if r.can_be_deleted and if_seq in (None, r.seq)]
            if gone:
                numbers = self.take_numbers(db, len(gone) * (1 + len(targets)))
                for row in gone:
                    row.take(numbers, len(targets))
                self._delete(db, [(r.seq, r.record) for r in gone], now)
                self._put_jobs(db, tenant, targets, now, [(r, Op.DELETE, None) for r in gone])
            self.announce(db, conn)
        self.wake()
        return tickets_of_deletes(kind, ids, rows, {r.id for r in gone})

    @abstractmethod
    def _targets(self, db: Connection, kind: str) -> list[int]:
        """The versions that need a job for a change of this kind, the serving one first. They are
        read inside the change's transaction, so a migration that begins a version can see which
        transactions do not know it yet. The first version of a new kind is created in a separate
        transaction, so that two callers need not wait for each other."""

    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        """The stored rows of the records, locked until the transaction ends."""
        found = db.execute(self.sql.known_records, (tenant, kind, version, sorted(ids)))
        return {row[0]: Row.stored(row) for row in found}

    def _write(
        self,
        db: Connection,
        tenant: str,
        kind: str,
        rows: Iterable[Row],
        targets: list[int],
        now: float,
    ) -> set[str]:
        """Write each record of the batch once, with its last draft. Returns the ids that were not
        written, because another transaction has just inserted them."""
        writes = Writes.of(rows, now)
        inserts = [(r.record, r.id, *self._content(r, d, now)) for r, d in writes.inserts]
        inserts += [stub_values(row, tenant, kind, now) for row in writes.stubs]
        updates = [(r.record, *self._content(r, d, now)) for r, d in writes.updates]
        lost = self._insert(db, tenant, kind, inserts)
        if updates:
            self._update(db, tenant, updates)
        if writes.quiet:
            self._update_quietly(db, writes.quiet)
        jobs = [job for job in writes.jobs if job[0].id not in lost] if lost else writes.jobs
        self._put_jobs(db, tenant, targets, now, jobs)
        return lost

    def _content(self, row: Row, draft: Draft, now: float) -> Values:
        return (*row.content(draft, now), *self._words(draft))

    @abstractmethod
    def _insert(self, db: Connection, tenant: str, kind: str, values: list[Values]) -> set[str]:
        """Insert new records; returns the ids that another transaction inserted first."""

    @abstractmethod
    def _update(self, db: Connection, tenant: str, values: list[Values]) -> None:
        """Replace the content of records."""

    def _update_quietly(self, db: Connection, values: list[Values]) -> None:
        db.execute(self.sql.update_quietly, columns(values))

    def _delete(self, db: Connection, values: list[Values], now: float) -> None:
        """Remove the content of records; `values`: seq and record of each."""
        db.execute(self.sql.delete_records, (now, *columns(values)))

    @abstractmethod
    def _words(self, draft: Draft) -> tuple[str, str]:
        """Title and text in the form that is indexed for full text."""

    def _put_jobs(
        self, db: Connection, tenant: str, targets: list[int], now: float, jobs: Sequence[NewJob]
    ) -> None:
        values = []
        for row, op, box in sorted(jobs, key=lambda job: job[0].record):
            draft = row.draft or _PLAIN
            due = now + draft.delay
            attempts = draft.max_attempts or self._max_attempts
            reached = targets[:1] if op is Op.OPEN else targets  # the serving version opens it
            for job_id, version in zip(row.job_ids, reached, strict=False):
                values.append(
                    (job_id, row.record, version, op.value, draft.priority, due, row.seq,
                     attempts, box, row.seq_of(box), draft.trace)
                )  # fmt: skip
        if values:
            self._write_jobs(db, tenant, now, values)

    def _write_jobs(self, db: Connection, tenant: str, now: float, values: list[Values]) -> None:
        """Write jobs, each once: job_id, record, version, op, priority, due, seq, attempts, box,
        the box's seq, trace."""
        db.execute(self.sql.put_jobs, (tenant, now, *columns(values)))


def stub_values(row: Row, tenant: str, kind: str, now: float) -> Values:
    """A hidden record, in the form that `_insert` expects."""
    stub = stub_of(row, tenant, kind, row.seq, now)
    return (stub[0], *stub[3:], None, None)
