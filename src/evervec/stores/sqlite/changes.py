"""Saving, deleting and enqueueing: a record and its job in one transaction.

A batch is compared with what is there, numbered, and then written with one
statement per table. Numbers come from the store's counter under the write lock,
so a later change always has the larger seq.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from evervec.model import Op, Status, Ticket, quick_maker
from evervec.stores.base import Draft
from evervec.stores.sqlite.engine import SQL, Engine, listed

Rows = list[tuple[Any, ...]]
_make_ticket = quick_maker(Ticket)


@dataclass(slots=True)
class Row:
    """A record as it stands, then as this batch leaves it."""

    id: str
    record: int = 0  # 0: not there yet
    state: str = ""
    seq: int = 0
    hash: bytes | None = None
    weight: float = 1.0
    created_at: float = 0.0
    updated_at: float = 0.0
    version: int | None = None
    metadata: str = "{}"
    data: str | None = None
    born: int = 0
    job_id: int = 0
    job_status: str | None = None
    job_op: str | None = None
    boxed: bool = False
    ledger_seq: int | None = None
    # what the batch does with it
    draft: Draft | None = None
    quiet: bool = False
    was_stored: bool = False
    was_live: bool = False

    def same_as(self, draft: Draft) -> bool:
        """Nothing that is searched or embedded differs, and its vectors are made or on their way."""
        return (
            self.state == "live"
            and self.hash == draft.hash
            and self.metadata == draft.metadata
            and self.weight == draft.weight
            and not self.boxed
            and (
                self.job_status not in (None, Status.FAILED)
                or (self.job_status is None and (self.ledger_seq or -1) >= self.seq)
            )
        )


class Changes(Engine):
    """The part of the store that takes what callers write."""

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
        targets = self._targets(db, kind, now)
        rows = self._known(db, tenant, kind, {d.id for d in drafts}, targets[0])
        steps = []
        count = 0
        for draft in drafts:
            row = rows.get(draft.id)
            if row is None:
                row = rows[draft.id] = Row(draft.id)
            verdict = _judge(row, draft)
            if verdict == "changed":
                count += 1
            steps.append((draft, row, verdict))
        number = self.take_numbers(db, count * (1 + len(targets))) if count else 0

        tickets = []
        for draft, row, verdict in steps:
            is_new = not row.record or row.state == "deleted"
            if verdict == "changed":
                row.seq = number
                row.record = row.record or number
                row.job_id = row.job_id or number + 1
                row.state = row.state if draft.boxed else "live"
                number += 1 + len(targets)
            accepted, changed = verdict != "stale", verdict == "changed"
            tickets.append(
                _make_ticket(kind, draft.id, row.job_id, row.seq, accepted, is_new, changed)
            )
        self._write(db, tenant, kind, rows.values(), targets, now)
        return tickets

    def delete(self, tenant: str, kind: str, ids: Sequence[str], conn: Any = None) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.now()
            targets = [row[0] for row in db.execute(SQL.targets, (kind,))]
            rows = self._known(db, tenant, kind, set(ids), targets[0]) if targets else {}
            gone = [r for r in rows.values() if _can_be_deleted(r)]
            accepted = {r.id for r in gone}
            if gone:
                number = self.take_numbers(db, len(gone) * (1 + len(targets)))
                for row in gone:
                    row.seq, row.job_id = number, row.job_id or number + 1
                    number += 1 + len(targets)
                db.execute(SQL.unindex_text, (scope(tenant), listed(r.record for r in gone)))
                db.executemany(SQL.delete_record, [(r.seq, now, r.record) for r in gone])
                self._put_jobs(db, tenant, targets, now, [(r, Op.DELETE, None) for r in gone])
        self.wake()
        tickets = []
        for id in ids:
            found = rows.get(id) or Row(id)
            first = id in accepted
            accepted.discard(id)
            tickets.append(Ticket(kind, id, found.job_id, found.seq, first, False, first))
        return tickets

    def _targets(self, db: sqlite3.Connection, kind: str, now: float) -> list[int]:
        """The versions that a change of this kind has to reach, the serving one first."""
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
            row = rows[found[0]] = Row(*found)
            row.job_id = row.job_id or 0
            row.was_stored, row.was_live = True, row.state == "live"
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
        """Each record of the batch once, as its last draft says."""
        inserts: Rows = []
        updates: Rows = []
        quiet: Rows = []
        texts: Rows = []
        jobs: list[tuple[Row, Op, str | None]] = []
        outdated: list[int] = []
        token = scope(tenant)
        for row in rows:
            draft = row.draft
            if draft is None:
                if row.quiet:
                    quiet.append(
                        (row.created_at, row.updated_at, row.version, row.data, row.record)
                    )
                continue
            if draft.boxed:
                jobs.append((row, Op.OPEN, pack_box(draft)))
                if not row.was_stored:
                    row.state = "hidden"
                    inserts.append(stub_of(row, tenant, kind, row.seq, now))
                elif row.version is not None:
                    quiet.append(
                        (row.created_at, row.updated_at, row.version, row.data, row.record)
                    )
                continue
            jobs.append((row, Op.EMBED, None))
            texts.append((row.record, token, draft.title or "", draft.text))
            created, updated = times(draft, row, now)
            content = (
                "live", row.seq, row.born if row.was_live else row.seq, draft.hash, draft.weight, created, updated, row.version,
                draft.title, draft.metadata, draft.data, draft.text,
            )  # fmt: skip
            if row.was_stored:
                updates.append((*content, row.record))
                if row.was_live:
                    outdated.append(row.record)
            else:
                inserts.append((row.record, tenant, kind, row.id, *content))
        if outdated:
            db.execute(SQL.unindex_text, (token, listed(outdated)))
        self._write_all(db, inserts, updates, quiet, texts)
        self._put_jobs(db, tenant, targets, now, jobs)

    def _write_all(
        self, db: sqlite3.Connection, inserts: Rows, updates: Rows, quiet: Rows, texts: Rows
    ) -> None:
        if quiet:
            self.take_numbers(db, 1)  # so that what is remembered of them is looked up again
        for query, values in (
            (SQL.insert_record, inserts),
            (SQL.update_record, updates),
            (SQL.update_quietly, quiet),
            (SQL.index_text, texts),
        ):
            if values:
                db.executemany(query, values)

    def _put_jobs(
        self,
        db: sqlite3.Connection,
        tenant: str,
        targets: list[int],
        now: float,
        jobs: list[tuple[Row, Op, str | None]],
    ) -> None:
        default = self._max_attempts
        values = []
        for row, op, box in jobs:
            draft = row.draft or _PLAIN
            due = now + draft.delay
            attempts = draft.max_attempts or default
            for place, version in enumerate(targets):
                job_id = row.seq + 1 + place if place else row.job_id
                values.append(
                    (job_id, row.record, version, tenant, op.value, draft.priority, due, row.seq,
                     attempts, now, box)
                )  # fmt: skip
        if values:
            db.executemany(SQL.put_job, values)


def _can_be_deleted(row: Row) -> bool:
    """It is there, or a job may yet make it appear."""
    will_appear = row.job_op in (Op.OPEN, Op.LOAD) and row.job_status != Status.DONE
    return row.state == "live" or will_appear


_PLAIN = Draft("", "", b"")


def _judge(row: Row, draft: Draft) -> str:
    """Whether a draft is stale, unchanged or changes the row; the row then stands as changed."""
    if draft.if_seq is not None and row.seq != draft.if_seq:
        return "stale"
    if draft.version is not None:
        if row.version is not None and draft.version <= row.version:
            return "stale"
        row.version = draft.version
        row.quiet = True
    if row.draft is None and row.same_as(draft):
        created, updated = draft.created_at, draft.updated_at
        if created is not None and created != row.created_at:
            row.created_at, row.quiet = created, True
        if updated is not None and updated != row.updated_at:
            row.updated_at, row.quiet = updated, True
        if draft.data != row.data:
            row.data, row.quiet = draft.data, True
        return "unchanged"
    row.draft = draft
    return "changed"


def times(draft: Draft, row: Row, now: float) -> tuple[float, float]:
    """When the record was created and updated, as its caller or its past says."""
    created = draft.created_at
    if created is None:
        created = row.created_at if row.was_live else now
    return created, now if draft.updated_at is None else draft.updated_at


def stub_of(row: Row, tenant: str, kind: str, seq: int, now: float) -> tuple[Any, ...]:
    """A record that nobody sees yet."""
    return (
        row.record, tenant, kind, row.id, "hidden", seq, seq, None, 1.0, now, now, row.version,
        None, "{}", None, "",
    )  # fmt: skip


def scope(tenant: str) -> str:
    """The word under which full text finds only this tenant's records."""
    return "t" + tenant.encode().hex()


_BOX = ("text", "title", "metadata", "weight", "data", "created_at", "updated_at")


def pack_box(draft: Draft) -> str:
    return json.dumps({name: getattr(draft, name) for name in _BOX}, ensure_ascii=False)
