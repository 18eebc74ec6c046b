"""Saving, deleting and enqueueing: a record and its job in one transaction.

The rows of a batch are compared with the stored rows, numbered, and then written with one
statement per table. A number is taken only after its row is locked, so of two changes of a record
the later one has the larger number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from evervec.model.jobs import EnqueueResult, Op, Ticket
from evervec.queue.transitions import to_enqueue, to_reopen
from evervec.stores.sql.engine import Connection, Engine, Part, Values, columns
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.record_rows import (
    Deletes,
    NewJob,
    RecordValues,
    Row,
    Writes,
    compare,
    number,
    tickets_of_deletes,
    unknown_versions,
)
from evervec.stores.sql.retries import retried
from evervec.stores.sql.tenants import Tenants
from evervec.stores.values import Draft


class Enqueued(NamedTuple):
    """Records of one kind that are enqueued in the same way."""

    tenant: str
    kind: str
    targets: list[int]
    plan: Draft
    """priority, delay and attempts"""
    now: float


class Changes(Part):
    """The part of the store that changes records."""

    def __init__(self, engine: Engine, tenants: Tenants, writer: JobWriter) -> None:
        super().__init__(engine)
        self._tenants = tenants
        self._writer = writer

    @contextmanager
    def together(self) -> Iterator[Any]:
        yield None

    @retried
    def save(
        self, tenant: str, kind: str, drafts: Sequence[Draft], conn: Any = None
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            self._tenants.check_kind(db, tenant, kind)
            targets = self._writer.targets(db, kind)
            now = self.engine.moment(db)
            tickets, lost = self._save(db, tenant, kind, drafts, targets, now)
            while lost:  # another transaction has just inserted these: compare with its rows
                places = [place for place, draft in enumerate(drafts) if draft.id in lost]
                again = [drafts[place] for place in places]
                made, lost = self._save(db, tenant, kind, again, targets, now)
                for place, ticket in zip(places, made, strict=True):
                    tickets[place] = ticket
            self.engine.announce(db, conn)
        if all(ticket.is_new for ticket in tickets):
            self.engine.tell()
        else:
            self.engine.wake()
        return tickets

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
        self._tenants.check_room(db, tenant, drafts, rows)
        steps = compare(drafts, rows)
        count = sum(verdict == "changed" for _, _, verdict in steps) * (1 + len(targets))
        tickets = number(kind, steps, self.engine.numbers(db, count), len(targets))
        lost = self._write(db, tenant, kind, rows.values(), targets, now)
        self._keep_given(db, [row for id, row in rows.items() if row.given and id not in lost])
        return tickets, lost

    def _keep_given(self, db: Connection, rows: Sequence[Row]) -> None:
        """Keep the vectors that came with records, for the workers that will write them."""
        if not rows:
            return
        if known := [row.record for row in rows if row.was_stored]:
            db.execute(self.sql.replace_given, (self.engine.listed(known),))
        values = [(row.record, row.seq, *row.given) for row in rows if row.given]
        self.engine.each(db, self.sql.put_given, values)

    @retried
    def delete(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        conn: Any = None,
        if_seq: Mapping[str, int] | None = None,
        versions: Mapping[str, int] | None = None,
        *,
        despite_debts: bool = False,
    ) -> list[Ticket]:
        with self.db.writing(durable=True, conn=conn) as db:
            now = self.engine.moment(db)
            targets = self._writer.versions_of(db, kind)
            rows: dict[str, Row] = {}
            accepted: set[str] = set()
            left = set(ids) if targets or versions else set()
            while left:
                rows |= self._known(db, tenant, kind, left, targets[0] if targets else 0)
                known = [row for id, row in rows.items() if id in left]
                deletes = Deletes.of(known, if_seq, versions, now, despite_debts=despite_debts)
                self._delete(db, tenant, targets, now, deletes)
                accepted.update(row.id for row in deletes.gone)
                unknown = unknown_versions(left - rows.keys(), if_seq, versions)
                # another transaction has just inserted these: compare with its rows
                left = self._bury(db, tenant, kind, unknown, now)
            self.engine.announce(db, conn)
        self.engine.wake()
        return tickets_of_deletes(kind, ids, rows, accepted)

    def _delete(
        self, db: Connection, tenant: str, targets: list[int], now: float, deletes: Deletes
    ) -> None:
        if deletes.quiet:
            self._update_quietly(db, deletes.quiet)
        if not deletes.gone:
            return
        numbers = self.engine.numbers(db, len(deletes.gone) * (1 + len(targets)))
        for row in deletes.gone:
            row.take(numbers, len(targets))
        self.remove(db, tenant, [(r.seq, r.record) for r in deletes.gone], now)
        jobs: list[NewJob] = [(r, Op.DELETE, None) for r in deletes.gone]
        self._writer.put_jobs(db, tenant, targets, now, jobs)

    def _bury(
        self, db: Connection, tenant: str, kind: str, versions: Mapping[str, int], now: float
    ) -> set[str]:
        """Keep the versions of deletes of unknown records, so that an older add that comes later is
        refused. Returns the ids that another transaction inserted first."""
        if not versions:
            return set()
        self._tenants.check_kind(db, tenant, kind)
        numbers = self.engine.numbers(db, len(versions))
        buried = [
            Row(id, record=number, seq=number, version=version).deleted(now)
            for (id, version), number in zip(sorted(versions.items()), numbers, strict=True)
        ]
        return self._insert(db, tenant, kind, buried)

    # records as they are stored
    def _known(
        self, db: Connection, tenant: str, kind: str, ids: set[str], version: int
    ) -> dict[str, Row]:
        """The stored rows of the records, locked until the transaction ends."""
        wanted = (tenant, kind, version, self.engine.listed(sorted(ids)))
        rows = map(Row.stored, db.execute(self.sql.known_records, wanted).fetchall())
        return {row.id: row for row in rows}

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
        new = [row.shown(draft, now, self.words(draft)) for row, draft in writes.inserts]
        new += [row.hidden(now) for row in writes.stubs]
        lost = self._insert(db, tenant, kind, new) if new else set()
        if writes.updates:
            changed = [row.shown(draft, now, self.words(draft)) for row, draft in writes.updates]
            self.update(db, tenant, changed)
        if writes.quiet:
            self._update_quietly(db, writes.quiet)
        jobs = [job for job in writes.jobs if job[0].id not in lost] if lost else writes.jobs
        are_first = not any(row.was_stored for row, _, _ in jobs)
        self._writer.put_jobs(db, tenant, targets, now, jobs, are_first=are_first)
        return lost

    @abstractmethod
    def words(self, draft: Draft) -> tuple[str, str]:
        """Title and text in the form that is indexed for full text."""

    @abstractmethod
    def _insert(
        self, db: Connection, tenant: str, kind: str, records: list[RecordValues]
    ) -> set[str]:
        """Insert new records; returns the ids that another transaction inserted first."""

    @abstractmethod
    def update(self, db: Connection, tenant: str, records: list[RecordValues]) -> None:
        """Replace the content of records."""

    def _update_quietly(self, db: Connection, values: list[Values]) -> None:
        """Change what is neither searched nor embedded."""
        self.engine.touch(db)
        self.engine.each(db, self.sql.update_quietly, values)

    def remove(self, db: Connection, tenant: str, gone: list[tuple[int, int]], now: float) -> None:
        """Remove the content of records; `gone`: seq and record of each."""
        db.execute(self.sql.delete_records, (now, *columns(gone)))

    # jobs without content
    @retried
    def enqueue(
        self,
        tenant: str,
        kind: str,
        ids: Sequence[str],
        *,
        loaded: bool,
        owing: bool = True,
        app: bool = False,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        bounded: bool = False,
        conn: Any = None,
    ) -> list[EnqueueResult]:
        plan = Draft("", "", b"", priority=priority, delay=delay, max_attempts=max_attempts)
        with self.db.writing(durable=True, conn=conn) as db:
            if bounded:
                self._tenants.check_kind(db, tenant, kind)
            targets = self._writer.targets(db, kind)
            if app:
                self._need_app(db, kind)
            if bounded:
                self._tenants.check_count(db, tenant, ids, kind)
            batch = Enqueued(tenant, kind, targets, plan, self.engine.moment(db))
            results = self._enqueue_new(db, batch, ids)
            left = set(ids) - results.keys()
            while left:  # the next pass sees rows that another transaction has just inserted
                left = self._enqueue(db, batch, left, results, loaded=loaded, owing=owing)
            self.engine.announce(db, conn)
        if all(result.is_new for result in results.values()):
            self.engine.tell()
        else:
            self.engine.wake()
        if len(results) == len(ids):
            return [results[id] for id in ids]
        again = {id: EnqueueResult(result.job_id, False) for id, result in results.items()}
        return [results.pop(id, again[id]) for id in ids]

    def _need_app(self, db: Connection, kind: str) -> None:
        """Record that only a process that registered the kind can do its jobs."""
        db.execute(self.sql.need_app, (kind,))

    def _enqueue_new(
        self, db: Connection, batch: Enqueued, ids: Sequence[str]
    ) -> dict[str, EnqueueResult]:
        """Enqueue unknown ids of a batch, in engines that can do this in one statement."""
        return {}

    def _enqueue(
        self,
        db: Connection,
        batch: Enqueued,
        ids: set[str],
        results: dict[str, EnqueueResult],
        *,
        loaded: bool,
        owing: bool,
    ) -> set[str]:
        """Enqueue records; returns the ids that another transaction inserted first."""
        tenant, kind, targets, plan, now = batch
        rows = self._known(db, tenant, kind, ids, targets[0])
        numbers = self.engine.numbers(db, len(ids) * (1 + len(targets)))
        stubs, jobs = list[RecordValues](), list[NewJob]()
        for id in sorted(ids):
            row = rows.get(id) or Row(id, state="hidden")
            known = row.job_id
            row.take(numbers, len(targets))
            row.draft = plan
            if not row.record:
                row.record = row.seq
                stubs.append(row.hidden(now))
            results[id] = EnqueueResult(row.job_id, not known)
            jobs.append((row, to_enqueue(row.state, loaded), None))
        lost = self._insert(db, tenant, kind, stubs) if stubs else set()
        jobs = [job for job in jobs if job[0].id not in lost]
        if owing:
            self._writer.put_enqueued(db, tenant, targets, now, jobs, is_loaded=loaded)
        else:
            self._writer.put_jobs(db, tenant, targets, now, jobs)
        return lost

    @retried
    def reopen(
        self, version: int, records: Sequence[int], *, forget: bool, priority: int = 0
    ) -> int:
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            self._writer.lock_records(conn, records)
            # a version that was retired in the meantime gets no jobs: no worker would do them
            which = (self.engine.listed(records), version)
            found = conn.execute(self.sql.reopen, which).fetchall()
            alike: dict[tuple[str, str], list[NewJob]] = defaultdict(list)
            for record, tenant, kind, state in found:
                row = Row("", record=record, draft=Draft("", "", b"", priority=priority))
                alike[tenant, kind].append((row, to_reopen(state), None))
            for (tenant, kind), jobs in alike.items():
                self._writer.put_again(conn, tenant, kind, version, now, jobs)
            if forget:
                reopened = [record for record, *_ in found]
                with self._tenants.counting_chunks(conn, reopened):
                    entries = [(record, version, 1 << 62) for record in reopened]
                    self.engine.each(conn, self.sql.drop_ledger, entries)
        self.engine.wake()
        return len(found)
