"""Evervec: open a store, add and delete records, search, run workers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from evervec.embedders.base import Embedder
from evervec.embedding.provider import Provider
from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import InvalidArgument, InvalidRecord, JobFailed, VersionMismatch, WaitTimeout
from evervec.indexes.base import Index
from evervec.indexes.fields import declare
from evervec.maintenance.housekeeping import Housekeeping
from evervec.model.basics import as_datetime
from evervec.model.bounds import check_limit
from evervec.model.filters import read_filter
from evervec.model.jobs import Job, Op, Status, Ticket
from evervec.model.records import Hits, Record, Version
from evervec.model.reports import Backfill, Estimate, Limits, ProcessResult, Usage, VerifyReport
from evervec.opening import open_embedder, open_index, open_model, open_source, open_store
from evervec.queue.queue import Queue
from evervec.queue.ticket_waiter import TicketWaiter
from evervec.records.drafts import LONGEST_ID, check_name, record_id
from evervec.records.kinds import Kind
from evervec.records.writer import RecordWriter
from evervec.search.search import Search
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft
from evervec.tables.base import Attachment, attachment
from evervec.tables.tables import Tables
from evervec.telemetry.counters import SEARCHES
from evervec.telemetry.visible import guard_logs
from evervec.verify.verify import verify
from evervec.versions.backfill import Backfiller
from evervec.versions.estimate import estimate
from evervec.versions.lifecycle import VersionLifecycle
from evervec.versions.migration import Migration
from evervec.worker.pipeline import Pipeline
from evervec.worker.push import Dispatcher
from evervec.worker.reader import RecordReader
from evervec.worker.signals import run_until_signalled
from evervec.worker.worker import Worker

log = logging.getLogger("evervec")
guard_logs()


def open(
    store: Any = None,
    *,
    index: str | None = None,
    embedder: str | Embedder = "auto",
    tenant: str = "default",
    reindex: bool = False,
    **settings: Any,
) -> Evervec:
    """Open a store; create it if it does not exist. No worker is started.

    `store`: a path or URL; default `$EVERVEC_STORE`, else `./evervec.db`; `memory:` for a store in
    memory. `index`: an index URL, or `own` for the store's own database; default
    `$EVERVEC_INDEX`, else the index that holds the store's vectors. `reindex`: change to that
    index and make all vectors again there. `settings`: any field of `evervec.Settings`.
    """
    loaded = Settings.load(settings)
    check_name("tenant", tenant)
    opened = open_store(store, loaded)
    try:
        made, why = open_embedder(embedder, opened, loaded)
        found = open_index(index, opened, loaded, reindex=reindex)
        return Evervec(opened, found, made, tenant, loaded, why, isinstance(embedder, str))
    except BaseException:
        opened.close()
        raise


class Evervec:
    """The records of one tenant, kept in sync with a vector index. Created by `evervec.open`."""

    def __init__(
        self,
        store: Store,
        index: Index,
        embedder: Embedder,
        tenant: str,
        settings: Settings,
        embedder_because: str = "",
        opened_embedder: bool = False,
    ) -> None:
        self.tenant = tenant
        self.settings = settings
        self.store = store
        self.index = index
        self.embedder = embedder
        self.embedder_because = embedder_because
        self._opened_embedder = opened_embedder
        self._kinds: dict[str, Kind] = {}
        self.provider = Provider(embedder, store, settings)
        self.models = EmbedderRegistry(self.provider, store, settings, open_model)
        self._check_versions()
        self.tables = Tables(open_source(store), store, settings)
        self._contents = RecordReader(self._kinds, self.tables, settings, store.now)
        self.queue = self.queue_of(tenant)
        self._writing = RecordWriter(store, settings, tenant, self._kinds, self.models, self.tables)
        self.pipeline = Pipeline(
            store, index, self.models, self.queue, self._kinds, self.tables, self._contents,
            settings,
        )  # fmt: skip
        self._backfiller = Backfiller(store, self.pipeline, self._kinds, settings)
        self.migrations = VersionLifecycle(
            store, index, self.models, self._backfiller, self.pipeline.cutter_of,
            self.queue.worker, settings,
        )  # fmt: skip
        self.housekeeping = Housekeeping(
            store, index, self.queue, self.tables, self.models, settings
        )
        self.dispatcher = Dispatcher(
            self.pipeline, self.housekeeping, self._backfiller.at_start(), self.migrations.step,
            settings,
        )  # fmt: skip
        self._search = Search(store, index, self.models, self._kinds, settings, tenant)
        self._waiting = TicketWaiter(store, settings.poll_seconds)

    def _check_versions(self) -> None:
        """Reject a model that serves no kind of the store: it may be a mistake, or another process
        may have migrated the store."""
        collections, main = self.store.versions.collections(), self.models.main
        if main is None:
            return
        served = [c for c in collections if c.state == "serving" and c.spec]
        if served and not any(c.spec and main.makes(c.spec) for c in served):
            spec = served[-1].spec
            assert spec is not None
            raise VersionMismatch(
                f"{self.store.url} serves {served[-1].kind!r} with vectors of {spec.provider} "
                f"{spec.model!r} ({spec.dimensions} dimensions, version {spec.name!r}), but was "
                f"opened with {main.spec.provider} {main.spec.model!r} ({main.spec.dimensions}); "
                "vectors of different models cannot be compared: open it with the first, then "
                "migrate without downtime with ev.migrate(embedder=...) or `evervec migrate`"
            )
        if any(c.spec is None for c in collections) and not self.store.read_only:
            self.store.versions.adopt(main.spec)

    def __enter__(self) -> Evervec:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.housekeeping.alerts.wait()
        self.index.close()
        self.store.close()
        self.models.close()
        if self._opened_embedder and hasattr(self.embedder, "close"):
            self.embedder.close()

    def of(self, tenant: str) -> Evervec:
        """The same store, index, embedder and kinds for another tenant. Close only the original,
        not this view."""
        check_name("tenant", tenant)
        view = copy(self)
        view.tenant = tenant
        view.queue = self.queue_of(tenant)
        view._writing = RecordWriter(
            self.store, self.settings, tenant, self._kinds, self.models, self.tables
        )
        view._search = Search(
            self.store, self.index, self.models, self._kinds, self.settings, tenant
        )
        return view

    def queue_of(self, tenant: str | None) -> Queue:
        """The queue of one tenant, or, with None, of all tenants."""
        return Queue(
            self.store, self.settings, tenant, self._kinds, self.models, self._contents.unread
        )

    def connection(self) -> Any:
        """A connection to the store's database, to write your own data and evervec's in one
        transaction: pass it as `conn=`, then commit. Only DuckDB needs it, because no other process
        can open the file; for other stores open a connection with your own driver."""
        return self.store.connection()

    # kinds
    def register(self, kind: Kind) -> None:
        """Register a kind in this process; an unregistered kind accepts plain text. Its
        `index_fields` are saved for all processes."""
        if not isinstance(kind, Kind):
            raise InvalidArgument(f"register needs an evervec.Kind, not {type(kind).__name__}")
        if kind.field_types is not None and not self.store.read_only:
            declare(self.store, kind.name, kind.field_types)
        self._kinds[kind.name] = kind
        self._search.forget()

    # writing
    def add(
        self,
        kind: str,
        data: Any,
        *,
        id: str | int | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        weight: float | None = None,
        priority: int = 0,
        delay: float = 0.0,
        max_attempts: int | None = None,
        version: int | None = None,
        created_at: Any = None,
        updated_at: Any = None,
        boxed: bool = False,
        wait: float | None = None,
        conn: Any = None,
    ) -> Ticket:
        """Save a record and enqueue its embedding job, in one transaction. When `add` returns, both
        are durable. `boxed`: the record stays hidden until it is embedded. `wait`: seconds to wait
        until it is embedded. `conn`: your own open transaction, which you commit."""
        options = {
            "id": id, "title": title, "metadata": metadata, "weight": weight,
            "priority": priority, "delay": delay, "max_attempts": max_attempts,
            "version": version, "created_at": created_at, "updated_at": updated_at,
            "boxed": boxed,
        }  # fmt: skip
        _check_wait(wait, conn)
        ticket = self._writing.save(kind, self.draft(kind, data, options), conn)
        if wait is not None:
            self.wait(ticket, wait)
        return ticket

    def draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        """A record as `add` would save it, checked and rendered; `options`: the other arguments of
        `add`."""
        return self._writing.draft(kind, data, options)

    def add_many(self, kind: str, records: Iterable[Any], *, conn: Any = None) -> Iterator[Ticket]:
        """Save many records as a stream: yields tickets in order, and saves one batch per
        transaction. An invalid record raises `InvalidRecord` with its position, after all records
        before it were saved and their tickets yielded."""
        return self._writing.many(kind, records, conn)

    def delete(
        self, kind: str, id: str | int, *, wait: float | None = None, conn: Any = None
    ) -> Ticket:
        """Delete a record: searches no longer return it, and its vectors are removed soon after.
        If it did not exist, the ticket is not `accepted`."""
        _check_wait(wait, conn)
        check_name("kind", kind)
        self.tables.check_writable(kind)
        ticket = self.store.changes.delete(self.tenant, kind, [_id(id)], conn)[0]
        if wait is not None and ticket.accepted:
            self.wait(ticket, wait)
        return ticket

    # reading
    def get(self, kind: str, id: str | int) -> Record | None:
        """The current record; None if it does not exist or is boxed."""
        check_name("kind", kind)
        return self.store.records.get(self.tenant, kind, _id(id))

    def records(
        self,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: Record | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Records ordered by kind and id, starting after `after` (a record, or its kind and id).
        `embedded=False`: only those without current vectors."""
        check_limit(limit)
        wanted = read_filter(filter, self.settings)
        if kind is not None:
            check_name("kind", kind)
        place = (after.kind, after.id) if isinstance(after, Record) else after
        for part in place or ():
            check_name("after", part, LONGEST_ID)
        return self.store.records.page(
            self.tenant, kind=kind, embedded=embedded, filter=wanted, after=place, limit=limit
        )

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        kind: str | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
        after: Ticket | None = None,
        wait: float = 5.0,
        rows: bool = False,
    ) -> Hits:
        """The best records for a query. `mode`: hybrid, semantic or text. `after`: wait up to
        `wait` seconds until that change is in the index. `rows`: set `hit.row` to the current row
        of an attached table; hits whose row is deleted, or now belongs to another tenant, are
        omitted."""
        if kind is not None:
            check_name("kind", kind)
        if after is not None:
            self.wait(after, wait)
        began = time.perf_counter()
        hits = self._search.search(query, k, kind, mode, filter)
        SEARCHES.observe(time.perf_counter() - began, hits.via)
        if not rows:
            return hits
        shown = self.tables.with_rows(self.tenant, hits)
        return Hits(shown, via=hits.via, version=hits.version)

    def wait(self, ticket: Ticket, timeout: float | None = None) -> Job:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        seconds = self.settings.wait_seconds if timeout is None else timeout
        end = self._waiting.settled(self.tenant, ticket, seconds)
        if end is None:
            raise self.timed_out(
                ticket, seconds,
                "check that a worker is running (ev.worker(), or ev.run_worker() in another "
                "process)",
            )  # fmt: skip
        job = self.store.jobs.serving_job(self.tenant, ticket.kind, ticket.id)
        if end is Status.FAILED:
            raise job_failed(ticket, job, "ev.queue.retry({})")
        return job or self._long_done(ticket)

    def timed_out(self, ticket: Ticket, seconds: float, advice: str) -> WaitTimeout:
        """The error for a change that was not in the index in time."""
        what = f"{ticket.kind} {ticket.id!r}"
        if self.store.jobs.is_saved(self.tenant, ticket):
            return WaitTimeout(
                f"{what} was not embedded within {seconds:g} s; it is saved and waiting: {advice}"
            )
        return WaitTimeout(
            f"this change of {what} is not in the store: its transaction is not committed or was "
            "rolled back, or its boxed record was cancelled, or deleted and purged"
        )

    def _long_done(self, ticket: Ticket) -> Job:
        """A stand-in for a job that is done and purged."""
        now = datetime.fromtimestamp(self.store.now(), UTC)
        return Job(
            ticket.job_id, self.tenant, ticket.kind, ticket.id, "", Op.EMBED, ticket.seq,
            ticket.seq, Status.DONE, 0, 0, self.settings.max_attempts, None, None, now, now,
            None, None, None,
        )  # fmt: skip

    def versions(self, *, all_tenants: bool = False) -> list[Version]:
        """The embedding versions of the tenant's kinds, with counts of its records; `all_tenants`:
        of all kinds, with counts of the whole store."""
        collections = self.store.versions.collections()
        tables = {(c.kind, c.spec.name): self.index.table(c) for c in collections if c.spec}
        templates = {c.kind: self.store.shared.note(f"template {c.kind}") for c in collections}
        found = []
        for v in self.store.versions.all():
            note = templates.get(v.kind)
            table = tables.get((v.kind, v.name), "")
            found.append(replace(v, table=table, template=note.value if note else ""))
        if all_tenants:
            return found
        held = self.store.versions.holdings(self.tenant)
        return [
            replace(version, items=mine.items, last_sync_at=as_datetime(mine.last_sync_at))
            for version in found
            if (mine := held.get((version.kind, version.name))) is not None
        ]

    # usage and limits
    def usage(self) -> Usage:
        """The tenant's usage, including today's, and its limits. This is cheap: the sums are
        maintained with every change."""
        return self.store.tenants.usage(self.tenant)

    def limits(self) -> Limits:
        """The limits set for this tenant; None where the settings `tenant_…` apply."""
        return self.store.tenants.own_limits(self.tenant)

    def set_limits(self, limits: Limits) -> None:
        """Replace the limits of the tenant. Existing data is kept, even beyond the limits."""
        self.store.tenants.set_limits(self.tenant, limits)

    # another model
    def migrate(
        self,
        embedder: str | Embedder,
        *,
        version: str | None = None,
        kind: str | None = None,
        switch: bool = False,
    ) -> Migration:
        """Migrate to another model without downtime: workers build its vectors beside the old
        ones. They serve after `migration.switch()`, or with `switch=True` as soon as they are
        complete and verified. The same call again continues the same migration. `version`: name
        of the new version; `kind`: only this kind."""
        if version is not None:
            check_name("version", version)
        if kind is not None:
            check_name("kind", kind)
        made, _ = open_embedder(embedder, self.store, self.settings)
        name = self.migrations.begin(made, version, kind, switch=switch)
        return Migration(self.migrations, name)

    def migration(self) -> Migration | None:
        """The migration that is in progress or can still be rolled back."""
        name = self.migrations.current()
        return None if name is None else Migration(self.migrations, name)

    def estimate(
        self, embedder: str | Embedder, *, kind: str | None = None, all_tenants: bool = False
    ) -> Estimate:
        """The cost of `migrate` for the tenant's records, estimated from a sample that is embedded
        once; `all_tenants`: for the whole store, which is what `migrate` changes."""
        made, _ = open_embedder(embedder, self.store, self.settings)
        if made.dimensions == 0:
            raise InvalidArgument("the noop embedder makes no vectors: choose another one")
        return estimate(
            self.store,
            self.models.add(made),
            [
                c
                for c in self.store.versions.collections()
                if c.state == "serving" and kind in (None, c.kind)
            ],
            self._kinds,
            self.settings.concurrency,
            None if all_tenants else self.tenant,
        )

    # working
    def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Process jobs until none is due. Jobs that are scheduled for later or claimed by other
        workers remain; in an outage, or without an embedder, jobs stay pending. `progress` is
        called with the number of ended jobs."""
        return self._worker(None).process_all(progress)

    def worker(self, concurrency: int | None = None) -> Worker:
        """A worker for a `with` block: it runs in the background and is drained at the end."""
        return self._worker(concurrency)

    def run_worker(self, concurrency: int | None = None) -> None:
        """Process jobs until SIGTERM or SIGINT, then drain; a second signal stops at once."""
        run_until_signalled(self._worker(concurrency))

    def _worker(self, concurrency: int | None) -> Worker:
        if concurrency is not None and concurrency < 1:
            raise InvalidArgument(f"concurrency must be at least 1, not {concurrency}")
        starting = self._backfiller.at_start()
        return Worker(
            self.pipeline, self.housekeeping, starting, self.migrations.step, self.settings,
            concurrency,
        )  # fmt: skip

    def backfill(
        self,
        kind: str | None = None,
        *,
        dry_run: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Backfill:
        """Enqueue records without current vectors, behind all live work: after a change of chunker
        or template, or a cancelled job. It covers all tenants, as workers do. `dry_run`: only
        estimate; `progress` is called with the number of records checked."""
        if kind is not None:
            check_name("kind", kind)
        return self._backfiller.run(kind, dry_run=dry_run, progress=progress)

    # tables of the application
    def attach(
        self,
        table: str,
        *,
        kind: str,
        text: str | Iterable[str],
        id: str | Iterable[str] = "id",
        metadata: Iterable[str] = (),
        title: str | None = None,
        weight: str | None = None,
        tenant: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
    ) -> Attachment:
        """Index a table of the store's database and keep it in sync: its rows become records of
        `kind`.

        Triggers log every change in the transaction of the writer, whatever program that is;
        workers enqueue existing rows, behind live changes. `text`: a column, several columns, or a
        template such as `"{title}: {body}"`. `tenant`: the column with the tenant. `dry_run`: only
        return the SQL, as `.sql` of the result. Records of the kind that are not rows of the table
        are deleted: a kind with records from other sources is rejected, unless `replace` is set.
        """
        check_name("kind", kind)
        planned = attachment(
            table, kind, id, text, metadata,
            title=title, weight=weight, tenant=tenant, owner=self.tenant,
        )  # fmt: skip
        return self.tables.attach(planned, dry_run=dry_run, replace=replace)

    def detach(self, table: str, *, keep_records: bool = False) -> int:
        """Stop indexing a table (or kind): drop its triggers, and delete its records unless kept;
        returns the number of deleted records."""
        return self.tables.detach(table, keep=keep_records)

    def verify(
        self,
        repair: bool = False,
        *,
        quick: bool = False,
        all_tenants: bool = False,
        progress: Callable[[int], object] = lambda _: None,
    ) -> VerifyReport:
        """Compare the index with the records, and the records with attached tables. Safe while
        workers run.

        `report.clean`: no faults were found. `report.complete`: also nothing is waiting, failed or
        unchecked, so the index holds exactly the latest version of every record. `repair` removes
        orphaned points, enqueues missing and stale records, and attaches tables again that lost
        their triggers. `quick` does not compare the records' texts. `progress` is called with the
        number of records checked.
        """
        return verify(
            self.store, self.index, self.tables, self.pipeline.cutter_of,
            None if all_tenants else self.tenant, repair=repair, quick=quick, progress=progress,
        )  # fmt: skip


def job_failed(ticket: Ticket, job: Job | None, retry: str) -> JobFailed:
    """The error for a change whose job failed; `retry`: how to retry the job."""
    what = f"{ticket.kind} {ticket.id!r} could not be embedded"
    if job is None:
        return JobFailed(f"{what}: its job was cancelled, or purged after it failed; add it again")
    return JobFailed(f"{what}: {job.error}; fix the cause, then {retry.format(job.job_id)}")


def _check_wait(wait: float | None, conn: Any) -> None:
    if wait is not None and conn is not None:
        raise InvalidArgument(
            "wait= cannot be used with conn=: nothing is embedded before you commit; "
            "commit, then ev.wait(ticket)"
        )


def _id(given: str | int) -> str:
    if given is None:
        raise InvalidRecord("id: is missing")
    return record_id(given)
