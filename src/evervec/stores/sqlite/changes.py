"""Saving, deleting and enqueueing: a record and its job in one transaction.

A batch is compared with the stored rows, numbered, and then written with one
statement per table. Numbers come from the store's counter under the write lock,
so a later change always has a larger seq.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from evervec.model.jobs import Op, Ticket
from evervec.stores.sql.debts import Debts
from evervec.stores.sql.engine import Connection
from evervec.stores.sql.records import (
    NewJob,
    Row,
    Writes,
    compare,
    number,
    scope,
    stub_of,
    tickets_of_deletes,
)
from evervec.stores.sql.tenants import Tenants, size_of
from evervec.stores.sqlite.engine import SQL, Engine, listed
from evervec.stores.values import Draft


class Changes(Engine, Debts, Tenants):
    """The part of the store that saves and deletes records."""

    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            tickets = self._save(db, tenant, kind, drafts)
        self.wake()
        return tickets

    def _save(
        self, db: sqlite3.Connection, tenant: str, kind: str, drafts: Sequence[Draft]
    ) -> list[Ticket]:
        now = self.now()
        self.check_kind(db, tenant, kind)
        targets = self._targets(db, kind, now)
        rows = self._known(db, tenant, kind, {d.id for d in drafts}, targets[0])
        self.check_room(db, tenant, drafts, rows)
        steps = compare(drafts, rows)
        count = sum(verdict == "changed" for _, _, verdict in steps) * (1 + len(targets))
        first = self.take_numbers(db, count) if count else 0
        tickets = number(kind, steps, iter(range(first, first + count)), len(targets))
        self._write(db, tenant, kind, rows.values(), targets, now)
        return tickets

    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: int | None = None,
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.now()
            targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
            rows = self._known(db, tenant, kind, set(ids), targets[0]) if targets else {}
            gone = [r for r in rows.values() if r.can_be_deleted and if_seq in (None, r.seq)]
            accepted = {r.id for r in gone}
            if gone:
                count = len(gone) * (1 + len(targets))
                first = self.take_numbers(db, count)
                numbers = iter(range(first, first + count))
                for row in gone:
                    row.take(numbers, len(targets))
                db.execute(SQL.unindex_text, (scope(tenant), listed(r.record for r in gone)))
                db.executemany(SQL.delete_record, [(r.seq, now, r.record) for r in gone])
                self._put_jobs(db, tenant, targets, now, [(r, Op.DELETE, None) for r in gone])
        self.wake()
        return tickets_of_deletes(kind, ids, rows, accepted)

    def _targets(self, db: sqlite3.Connection, kind: str, now: float) -> list[int]:
        """The versions that need a job for a change of this kind, the serving one first."""
        targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
        if not targets:
            number = self.take_numbers(db, 1)
            db.execute(SQL.add_version, (number, kind, now))
            targets = [number]
        return targets

    def _known(
        self, db: sqlite3.Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        wanted = {"tenant": tenant, "kind": kind, "version": version, "ids": listed(ids)}
        rows = {}
        for found in db.execute(SQL.known_records, wanted):
            rows[found[0]] = Row.stored(found)
        return rows

    def _write(
        self,
        db: sqlite3.Connection,
        tenant: str,
        kind: str,
        rows: Iterable[Row],
        targets: list[int],
        now: float,
    ) -> None:
        writes, token = Writes.of(rows, now), scope(tenant)
        outdated = [row.record for row, _ in writes.updates if row.was_live]
        if outdated:
            db.execute(SQL.unindex_text, (token, listed(outdated)))
        if writes.quiet:
            self.take_numbers(db, 1)  # so that caches of these records are refreshed
        inserts = [(r.record, tenant, kind, r.id, *r.content(d, now)) for r, d in writes.inserts]
        inserts += [stub_of(row, tenant, kind, row.seq, now) for row in writes.stubs]
        updates = [(*row.content(draft, now), row.record) for row, draft in writes.updates]
        texts = [
            (row.record, token, draft.title or "", draft.text)
            for row, draft in chain(writes.inserts, writes.updates)
        ]
        for query, values in (
            (SQL.insert_record, inserts),
            (SQL.update_record, updates),
            (SQL.update_quietly, writes.quiet),
            (SQL.index_text, texts),
        ):
            if values:
                db.executemany(query, values)
        if inserts:
            size = sum(size_of(draft) for _, draft in writes.inserts)
            db.execute(SQL.count_new, (tenant, kind, len(inserts), size))
        self._put_jobs(db, tenant, targets, now, writes.jobs)

    def _put_jobs(
        self,
        db: Connection,
        tenant: str,
        targets: list[int],
        now: float,
        jobs: Sequence[NewJob],
    ) -> None:
        default = self._max_attempts
        values = []
        for row, op, box in jobs:
            draft = row.draft or _PLAIN
            due = now + draft.delay
            attempts = draft.max_attempts or default
            reached = targets[:1] if op is Op.OPEN else targets  # the serving version opens it
            for job_id, version in zip(row.job_ids, reached, strict=False):
                values.append(
                    (job_id, row.record, version, tenant, op.value, draft.priority, due, row.seq,
                     attempts, now, box, draft.trace, row.seq_of(box))
                )  # fmt: skip
        if values:
            db.executemany(SQL.put_job, values)


_PLAIN = Draft("", "", b"")
