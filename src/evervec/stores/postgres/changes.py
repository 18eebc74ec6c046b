"""Saving and deleting: a record and its job in one transaction.

The rows of a batch are locked in the order of their keys, compared, numbered, and then
written with one statement per table. A number is taken once its row is locked, so of two
changes of a record the later has the larger one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evervec.model import Op, Ticket
from evervec.stores.base import Draft
from evervec.stores.postgres.connections import Session
from evervec.stores.postgres.engine import SQL, Engine, columns, retried
from evervec.stores.postgres.folding import fold, owner_word
from evervec.stores.sql.records import (
    Row,
    judge,
    number,
    pack_box,
    stub_of,
    tickets_of_deletes,
)

Values = tuple[Any, ...]
NewJob = tuple[Row, Op, str | None]
_PLAIN = Draft("", "", b"")


class Changes(Engine):
    """The part of the store that takes what callers write."""

    @retried
    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        targets = self._targets(kind)
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.moment(db)
            tickets: dict[int, Ticket] = {}
            places = list(range(len(drafts)))
            while places:
                chosen = [drafts[place] for place in places]
                made, lost = self._save(db, tenant, kind, chosen, targets, now)
                tickets.update(zip(places, made, strict=True))
                # what another transaction made in this moment is there now, to be compared with
                places = [place for place in places if drafts[place].id in lost]
            self.announce(db, conn)
        if all(ticket.is_new for ticket in tickets.values()):
            self.tell()
        else:
            self.wake()
        return [tickets[place] for place in range(len(drafts))]

    def _save(
        self,
        db: Session,
        tenant: str,
        kind: str,
        drafts: Sequence[Draft],
        targets: list[int],
        now: float,
    ) -> tuple[list[Ticket], set[str]]:
        """Tickets, and the ids of new records that another transaction was faster with."""
        rows = self._known(db, tenant, kind, {d.id for d in drafts}, targets[0])
        steps = []
        for draft in drafts:
            row = rows.get(draft.id)
            if row is None:
                row = rows[draft.id] = Row(draft.id)
            steps.append((draft, row, judge(row, draft)))
        count = sum(verdict == "changed" for _, _, verdict in steps) * (1 + len(targets))
        numbers = self.take_numbers(db, count) if count else iter(())
        tickets = number(kind, steps, numbers, len(targets))
        return tickets, self._write(db, tenant, kind, rows.values(), targets, now)

    @retried
    def delete(self, tenant: str, kind: str, ids: Sequence[str], conn: Any = None) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.moment(db)
            targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
            rows = self._known(db, tenant, kind, set(ids), targets[0]) if targets else {}
            gone = [r for r in rows.values() if r.can_be_deleted]
            if gone:
                numbers = self.take_numbers(db, len(gone) * (1 + len(targets)))
                for row in gone:
                    row.take(numbers, len(targets))
                deleted = columns([(r.seq, r.record) for r in gone])
                db.execute(SQL.delete_records, (now, *deleted))
                self._put_jobs(db, tenant, targets, now, [(r, Op.DELETE, None) for r in gone])
            self.announce(db, conn)
        self.wake()
        return tickets_of_deletes(kind, ids, rows, {r.id for r in gone})

    def _targets(self, kind: str) -> list[int]:
        """The versions that a change of this kind has to reach, the serving one first. A new
        kind's is made in a transaction of its own: two callers need not wait for each other."""
        with self.db.reading() as db:
            targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
            while not targets:
                db.execute(SQL.add_version, (kind,))
                targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
        return targets

    def _known(
        self, db: Session, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        """Lock what is there of the records, and read it as it is then."""
        wanted = sorted(ids)
        if not db.execute(SQL.lock_records, (tenant, kind, wanted)).rowcount:
            return {}
        found = db.execute(SQL.known_records, (tenant, kind, version, wanted))
        return {row[0]: Row.stored(row) for row in found}

    def _write(
        self,
        db: Session,
        tenant: str,
        kind: str,
        rows: Iterable[Row],
        targets: list[int],
        now: float,
    ) -> set[str]:
        """Each record of the batch once, as its last draft says. Ids that were not written,
        because they were just inserted elsewhere."""
        inserts: list[Values] = []
        updates: list[Values] = []
        quiet: list[Values] = []
        jobs: list[NewJob] = []
        for row in rows:
            draft = row.draft
            if draft is None:
                if row.quiet:
                    quiet.append(row.quiet_values)
                continue
            if draft.boxed:
                jobs.append((row, Op.OPEN, pack_box(draft)))
                if not row.was_stored:
                    row.state = "hidden"
                    inserts.append(stub_values(row, tenant, kind, now))
                elif row.version is not None:
                    quiet.append(row.quiet_values)
                continue
            jobs.append((row, Op.EMBED, None))
            content = (*row.content(draft, now), fold(draft.title or ""), fold(draft.text))
            if row.was_stored:
                updates.append((row.record, *content))
            else:
                inserts.append((row.record, row.id, *content))
        lost = self._insert(db, tenant, kind, inserts)
        if updates:
            db.execute(SQL.update_records, (owner_word(tenant), *columns(updates)))
        if quiet:
            db.execute(SQL.update_quietly, columns(quiet))
        if lost:
            jobs = [job for job in jobs if job[0].id not in lost]
        self._put_jobs(db, tenant, targets, now, jobs)
        return lost

    def _insert(self, db: Session, tenant: str, kind: str, values: list[Values]) -> set[str]:
        """Insert new records in the order of their keys; the ids of those that another
        transaction inserted before."""
        if not values:
            return set()
        values.sort(key=lambda row: row[1])
        head = (tenant, kind, owner_word(tenant))
        made = db.execute(SQL.insert_records, (*head, *columns(values)))
        return {row[1] for row in values} - {row[0] for row in made}

    def _put_jobs(
        self, db: Session, tenant: str, targets: list[int], now: float, jobs: Iterable[NewJob]
    ) -> None:
        values = []
        for row, op, box in sorted(jobs, key=lambda job: job[0].record):
            draft = row.draft or _PLAIN
            due = now + draft.delay
            attempts = draft.max_attempts or self._max_attempts
            for job_id, version in zip(row.job_ids, targets, strict=True):
                values.append(
                    (job_id, row.record, version, op.value, draft.priority, due, row.seq,
                     attempts, box)
                )  # fmt: skip
        if values:
            db.execute(SQL.put_jobs, (tenant, now, *columns(values)))


def stub_values(row: Row, tenant: str, kind: str, now: float) -> Values:
    """A record that nobody sees yet, as `insert_records` takes it."""
    stub = stub_of(row, tenant, kind, row.seq, now)
    return (stub[0], *stub[3:], None, None)
