"""Evervec: open a store, add and delete records, search, work the queue."""

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
from evervec.maintenance.housekeeping import Housekeeping
from evervec.model.basics import as_datetime
from evervec.model.bounds import check_limit
from evervec.model.filters import check_filter
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
    """Open a store, making it when it is new. No worker is started.

    `store`: a path or URL; default `$EVERVEC_STORE`, else `./evervec.db`; `memory:` for none
    on disk. `index`: an index URL, or `own` for the store's own database; default
    `$EVERVEC_INDEX`, else where the store's vectors are. `reindex`: change to that index, and
    have all vectors made again there. `settings`: any of `evervec.Settings` by its name.
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
    """Records of one tenant, kept in step with a vector index. Made by `evervec.open`."""

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
        self.tables = Tables(open_source(store), settings)
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
        """A model that serves no kind cannot be what the caller means; another process may have
        changed the store's."""
        collections, main = self.store.collections(), self.models.main
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
                "vectors of two models cannot be compared: open it with the first, then change "
                "it with ev.migrate(embedder=...), or `evervec migrate`, while searches go on"
            )
        if any(c.spec is None for c in collections) and not self.store.read_only:
            self.store.adopt(main.spec)

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
        """The same store, index, embedder and kinds as another tenant sees them; closing it is
        this one's affair."""
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
        """The queue as one tenant sees it, or, with None, for all tenants together."""
        return Queue(
            self.store, self.settings, tenant, self._kinds, self.models, self._contents.unread
        )

    def connection(self) -> Any:
        """A connection to the store's own database, for your own writes and evervec's in one
        transaction: give it as `conn=`, then commit. Only DuckDB needs it, where nobody else can
        open the file; for other stores open one with your own driver."""
        return self.store.connection()

    # kinds
    def register(self, kind: Kind) -> None:
        """Make a kind known to this process; a kind that is not known takes plain text."""
        if not isinstance(kind, Kind):
            raise InvalidArgument(f"register takes an evervec.Kind, not {type(kind).__name__}")
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
        """Save a record and enqueue its embedding, in one transaction. When this returns it is
        on disk. `boxed`: it appears only once embedded. `wait`: seconds to wait for that.
        `conn`: your own open transaction, which you commit."""
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
        """A record as `add` would save it, checked and rendered; `options`: the others of its
        arguments."""
        return self._writing.draft(kind, data, options)

    def add_many(self, kind: str, records: Iterable[Any], *, conn: Any = None) -> Iterator[Ticket]:
        """Save many records, streamed: tickets in order as you iterate, a batch in each
        transaction. A bad record raises `InvalidRecord` with its position, after all before
        it were saved and ticketed."""
        return self._writing.many(kind, records, conn)

    def delete(
        self, kind: str, id: str | int, *, wait: float | None = None, conn: Any = None
    ) -> Ticket:
        """The record disappears from every search at once, and its vectors soon after. A ticket
        that is not `accepted` says that there was none."""
        _check_wait(wait, conn)
        check_name("kind", kind)
        self.tables.check_writable(kind)
        ticket = self.store.delete(self.tenant, kind, [_id(id)], conn)[0]
        if wait is not None and ticket.accepted:
            self.wait(ticket, wait)
        return ticket

    # reading
    def get(self, kind: str, id: str | int) -> Record | None:
        """The record as it is now; None when it is absent or still boxed."""
        check_name("kind", kind)
        return self.store.get(self.tenant, kind, _id(id))

    def records(
        self,
        kind: str | None = None,
        *,
        embedded: bool | None = None,
        filter: Mapping[str, Any] | None = None,
        after: Record | tuple[str, str] | None = None,
        limit: int = 100,
    ) -> list[Record]:
        """Records in order of kind and id, from the one behind `after` (a record, or its
        kind and id). `embedded=False`: those without current vectors."""
        check_limit(limit)
        check_filter(filter, self.settings)
        if kind is not None:
            check_name("kind", kind)
        place = (after.kind, after.id) if isinstance(after, Record) else after
        for part in place or ():
            check_name("after", part, LONGEST_ID)
        return self.store.records(
            self.tenant, kind=kind, embedded=embedded, filter=filter, after=place, limit=limit
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
        """The best records for a question. `mode`: hybrid, semantic or text. `after`: wait up
        to `wait` seconds until that change can be found. `rows`: with each hit of an attached
        table its row as it is now, as `hit.row`; a hit whose row is gone, or is another tenant's
        by now, is left out."""
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
                "see that a worker runs (with ev.worker(), or ev.run_worker() in another process)",
            )  # fmt: skip
        job = self.store.serving_job(self.tenant, ticket.kind, ticket.id)
        if end is Status.FAILED:
            raise job_failed(ticket, job, "ev.queue.retry({})")
        return job or self._long_done(ticket)

    def timed_out(self, ticket: Ticket, seconds: float, advice: str) -> WaitTimeout:
        """What to say of a change that was not in the index in time."""
        what = f"{ticket.kind} {ticket.id!r}"
        if self.store.is_saved(self.tenant, ticket):
            return WaitTimeout(
                f"{what} was not embedded within {seconds:g} s; it is saved and waits: {advice}"
            )
        return WaitTimeout(
            f"this change of {what} is not in the store: its transaction has not committed, or was "
            "rolled back; or its boxed record was cancelled, or deleted and forgotten since"
        )

    def _long_done(self, ticket: Ticket) -> Job:
        """What is left to say of a job that was done and purged since."""
        now = datetime.fromtimestamp(self.store.now(), UTC)
        return Job(
            ticket.job_id, self.tenant, ticket.kind, ticket.id, "", Op.EMBED, ticket.seq,
            ticket.seq, Status.DONE, 0, 0, self.settings.max_attempts, None, None, now, now,
            None, None, None,
        )  # fmt: skip

    def versions(self, *, all_tenants: bool = False) -> list[Version]:
        """The embedding versions of the kinds that the tenant has records of, with counts of its
        own; `all_tenants`: of all kinds, with the counts of the whole store."""
        collections = self.store.collections()
        tables = {(c.kind, c.spec.name): self.index.table(c) for c in collections if c.spec}
        templates = {c.kind: self.store.note(f"template {c.kind}") for c in collections}
        found = []
        for v in self.store.versions():
            note = templates.get(v.kind)
            table = tables.get((v.kind, v.name), "")
            found.append(replace(v, table=table, template=note.value if note else ""))
        if all_tenants:
            return found
        held = self.store.holdings(self.tenant)
        return [
            replace(version, items=mine.items, last_sync_at=as_datetime(mine.last_sync_at))
            for version in found
            if (mine := held.get((version.kind, version.name))) is not None
        ]

    # what a tenant may and does have
    def usage(self) -> Usage:
        """What the tenant has and used today, beside what it may. Nothing is counted for it: the
        sums are kept with every change."""
        return self.store.usage(self.tenant)

    def limits(self) -> Limits:
        """What is set for the tenant itself; None where the settings' `tenant_…` count."""
        return self.store.own_limits(self.tenant)

    def set_limits(self, limits: Limits) -> None:
        """Set what the tenant may have, in the place of all that was set for it before. Whatever
        is there stays, also where it is more than that."""
        self.store.set_limits(self.tenant, limits)

    # another model
    def migrate(
        self,
        embedder: str | Embedder,
        *,
        version: str | None = None,
        kind: str | None = None,
        switch: bool = False,
    ) -> Migration:
        """Change to another model while searches and writes go on: its vectors are built beside
        the old ones by the workers, and serve after `migration.switch()`; or with `switch=True`
        as soon as they are complete and checked. The same call again takes the same migration
        up. `version`: the new version's name; `kind`: only that one."""
        if version is not None:
            check_name("version", version)
        if kind is not None:
            check_name("kind", kind)
        made, _ = open_embedder(embedder, self.store, self.settings)
        name = self.migrations.begin(made, version, kind, switch=switch)
        return Migration(self.migrations, name)

    def migration(self) -> Migration | None:
        """The migration that is under way, or can still be rolled back."""
        name = self.migrations.current()
        return None if name is None else Migration(self.migrations, name)

    def estimate(
        self, embedder: str | Embedder, *, kind: str | None = None, all_tenants: bool = False
    ) -> Estimate:
        """What `migrate` would take for the tenant's records, by a sample that is embedded once;
        `all_tenants`: for those of the whole store, which is what it does."""
        made, _ = open_embedder(embedder, self.store, self.settings)
        if made.dimensions == 0:
            raise InvalidArgument("the noop embedder makes no vectors: give another one")
        return estimate(
            self.store,
            self.models.add(made),
            [
                c
                for c in self.store.collections()
                if c.state == "serving" and kind in (None, c.kind)
            ],
            self._kinds,
            self.settings.concurrency,
            None if all_tenants else self.tenant,
        )

    # working
    def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Work until no job is due. Jobs scheduled for later or leased elsewhere stay; in an
        outage, or without an embedder, it returns with them pending. `progress` is called with
        the number of jobs that ended."""
        return self._worker(None).process_all(progress)

    def worker(self, concurrency: int | None = None) -> Worker:
        """A worker for a `with` block: it runs in the background, and is drained at the end."""
        return self._worker(concurrency)

    def run_worker(self, concurrency: int | None = None) -> None:
        """Work until SIGTERM or SIGINT, then drain; a second one stops at once."""
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
        """Enqueue what has no current vectors, behind all live work: after another way to cut or
        render texts, or a job that was cancelled. For all tenants, as workers are. `dry_run`
        only says what it would take; `progress` is called with the number of records looked at."""
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
        """Keep a table of the store's own database in step: its rows are records of `kind`.

        Triggers note every change in the writer's own transaction, whatever program writes; rows
        that are there already are enqueued by workers, behind live changes. `text`: a column,
        several, or a template such as `"{title}: {body}"`. `tenant`: the column that says whose
        a row is. `dry_run`: only give the SQL, as `.sql` of the answer. All records of the kind
        that are not rows of the table go: a kind with records that were added by hand is
        refused, unless `replace` says so.
        """
        check_name("kind", kind)
        planned = attachment(
            table, kind, id, text, metadata,
            title=title, weight=weight, tenant=tenant, owner=self.tenant,
        )  # fmt: skip
        return self.tables.attach(self.store, planned, dry_run=dry_run, replace=replace)

    def detach(self, table: str, *, keep_records: bool = False) -> int:
        """Stop following a table (or kind): its triggers go, and its records too unless kept;
        how many those were."""
        return self.tables.detach(self.store, table, keep=keep_records)

    def verify(
        self,
        repair: bool = False,
        *,
        quick: bool = False,
        all_tenants: bool = False,
        progress: Callable[[int], object] = lambda _: None,
    ) -> VerifyReport:
        """Compare the index with the records, and those with the tables that are attached. Safe
        beside workers.

        `report.clean`: nothing wrong was found. `report.complete`: nothing waits, failed or was
        left unchecked either, so the index holds exactly the latest version of every record.
        `repair` takes out what is too much, enqueues what is missing or stale, and attaches
        tables again that lost their triggers. `quick` does not read the records' texts.
        `progress` is called with the number of records looked at.
        """
        return verify(
            self.store, self.index, self.tables, self.pipeline.cutter_of,
            None if all_tenants else self.tenant, repair=repair, quick=quick, progress=progress,
        )  # fmt: skip


def job_failed(ticket: Ticket, job: Job | None, retry: str) -> JobFailed:
    """What to say of a change that will not be in the index; `retry`: how its job is retried."""
    what = f"{ticket.kind} {ticket.id!r} could not be embedded"
    if job is None:
        return JobFailed(f"{what}: its job was cancelled, or purged after it failed; add it again")
    return JobFailed(f"{what}: {job.error}; mend it, then {retry.format(job.job_id)}")


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
