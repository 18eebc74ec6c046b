"""Evervec: add and delete records, search, run workers, change the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from os import PathLike
from typing import TYPE_CHECKING, Any

from evervec.embedders.base import Embedder
from evervec.embedding.prepared import Vectors as PreparedVectors
from evervec.embedding.provider import Provider
from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import InvalidArgument
from evervec.indexes.base import Index
from evervec.indexes.fields import declare
from evervec.maintenance.housekeeping import Housekeeping, Upkeep
from evervec.model.bounds import check_limit
from evervec.model.filters import read_filter
from evervec.model.jobs import Job, Ticket
from evervec.model.ranking import Rescore
from evervec.model.records import ChunkVector, Hits, Record, Vectors, Version
from evervec.model.reports import (
    Backfill,
    Estimate,
    Exported,
    Imported,
    Limits,
    ProcessResult,
    Usage,
    VerifyReport,
)
from evervec.opening import open_embedder, open_model, open_reranker, open_source
from evervec.queue.queue import Queue
from evervec.queue.ticket_waiter import TicketWaiter, check_wait
from evervec.records.drafts import LONGEST_ID, check_given, check_name, existing_id, existing_ids
from evervec.records.kinds import Kind, typed_record
from evervec.records.writer import RecordWriter
from evervec.rerankers.base import Reranker
from evervec.search.request import read_request
from evervec.search.reranker import RerankerRegistry
from evervec.search.search import Search
from evervec.search.vectors import VectorReader
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.notes import Episode
from evervec.stores.values import Draft
from evervec.tables.base import Attachment, attachment
from evervec.tables.tables import Tables
from evervec.telemetry.visible import guard_logs
from evervec.transfer.export import Exporter
from evervec.transfer.loader import Loader
from evervec.verify.verify import verify
from evervec.versions.backfill import Backfiller
from evervec.versions.estimate import estimate
from evervec.versions.lifecycle import VersionLifecycle
from evervec.versions.migration import Migration
from evervec.worker.pipeline import Pipeline
from evervec.worker.push import Dispatcher
from evervec.worker.reader import RecordReader
from evervec.worker.worker import Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

guard_logs()


class Evervec(AbstractContextManager["Evervec"]):
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
        self.settings = settings
        self.store = store
        self.index = index
        self.embedder = embedder
        self.embedder_because = embedder_because
        self._opened_embedder = opened_embedder
        self._kinds: dict[str, Kind] = {}
        self.provider = Provider(embedder, store, settings)
        models = self.models = EmbedderRegistry(self.provider, store, settings, open_model)
        tables = self.tables = Tables(open_source(store), store, settings)
        self._reader = RecordReader(store, self._kinds, tables, settings)
        self._rerankers = RerankerRegistry(settings, open_reranker)
        self._use_tenant(tenant)
        self.pipeline = Pipeline(
            store, index, models, self._kinds, self.queue, tables, self._reader, settings
        )
        self._backfiller = Backfiller(store, self.pipeline, self._kinds, settings)
        self._lifecycle = VersionLifecycle(
            store, index, models, self._backfiller, self.pipeline.served.cutter_of,
            self.queue.worker, settings,
        )  # fmt: skip
        self._housekeeping = Housekeeping(store, index, self.queue, tables, models, settings)
        self.dispatcher = Dispatcher(self.pipeline, self._upkeep(), settings)
        self.pipeline.served.check_model()
        self.waiter = TicketWaiter(store, settings)

    def _use_tenant(self, tenant: str) -> None:
        self.tenant = tenant
        self.queue = self.queue_of(tenant)
        self._writer = RecordWriter(
            self.store, self.settings, tenant, self._kinds, self.models, self.tables,
            lambda kind: self.pipeline.served.target_of(kind),  # noqa: PLW0108 - it is made later
        )  # fmt: skip
        self._search = Search(
            self.store, self.index, self.models, self._kinds, self.settings, tenant,
            self._rerankers,
        )  # fmt: skip
        self._vectors = VectorReader(self.store, self.index, tenant)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._housekeeping.alerts.wait()
        self.index.close()
        self.store.close()
        self.models.close()
        self._rerankers.close()
        if self._opened_embedder and hasattr(self.embedder, "close"):
            self.embedder.close()

    def of(self, tenant: str) -> Evervec:
        """The same store, index, embedder and kinds for another tenant. Close only the original,
        not this view."""
        check_name("tenant", tenant)
        view = copy(self)
        view._use_tenant(tenant)
        return view

    def queue_of(self, tenant: str | None) -> Queue:
        """The queue of one tenant, or, with None, of all tenants."""
        return Queue(
            self.store, self.settings, tenant, self._kinds, self.models, self._reader.content
        )

    def connection(self) -> Any:
        """A connection to the store's database, to write your own data and evervec's in one
        transaction: pass it as `conn=`, then commit. Only DuckDB needs it, because no other process
        can open the file; for other stores open a connection with your own driver."""
        return self.store.connection()

    # kinds
    def register(self, kind: Kind) -> None:
        """Register a kind in this process; an unregistered kind accepts plain text. Its
        `index_fields` and `rescore` are saved for all processes."""
        if not isinstance(kind, Kind):
            raise InvalidArgument(f"register needs an evervec.Kind, not {type(kind).__name__}")
        if not self.store.read_only:
            if kind.field_types is not None:
                declare(self.store, kind.name, kind.field_types)
            if kind.rescoring is not None:
                self.store.versions.set_rescore(kind.name, kind.rescoring)
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
        vectors: Vectors | Mapping[str, Any] | None = None,
        wait: float | None = None,
        conn: Any = None,
    ) -> Ticket:
        """Save a record and enqueue its embedding job, in one transaction. When `add` returns, both
        are durable. `boxed`: the record stays hidden until it is embedded. `vectors`: your own, one
        for each chunk, so that nothing is embedded. `wait`: seconds to wait until it is embedded.
        `conn`: your own open transaction, which you commit."""
        options = {
            "id": id, "title": title, "metadata": metadata, "weight": weight,
            "priority": priority, "delay": delay, "max_attempts": max_attempts,
            "version": version, "created_at": created_at, "updated_at": updated_at,
            "boxed": boxed, "vectors": vectors,
        }  # fmt: skip
        check_wait(wait, conn)
        ticket = self._writer.save(kind, self.draft(kind, data, options), conn)
        if wait is not None:
            self.wait(ticket, wait)
        return ticket

    def draft(self, kind: str, data: Any, options: Mapping[str, Any]) -> Draft:
        """A record as `add` would save it, checked and rendered; `options`: the other arguments of
        `add`."""
        return self._writer.draft(kind, data, options)

    def chunks(self, kind: str, data: Any, *, title: str | None = None) -> list[str]:
        """The texts that would be embedded for a record, one for each chunk, for those who make
        the vectors themselves. Each includes the title."""
        return self._writer.chunks(kind, data, {"title": title})

    def add_many(self, kind: str, records: Iterable[Any], *, conn: Any = None) -> Iterator[Ticket]:
        """Save many records as a stream: yields tickets in order, and saves one batch per
        transaction. An invalid record raises `InvalidRecord` with its position, after all records
        before it were saved and their tickets yielded."""
        return self._writer.many(kind, records, conn)

    def delete(
        self,
        kind: str,
        id: str | int,
        *,
        version: int | None = None,
        wait: float | None = None,
        if_seq: int | None = None,
        conn: Any = None,
    ) -> Ticket:
        """Delete a record: searches no longer return it, and its vectors are removed soon after.
        If it did not exist, the ticket is not `accepted`. `version`: delete it only if its version
        is older; an `add` that is not newer is then refused, for as long as deletes are kept.
        `if_seq`: only if the record still has that seq."""
        check_wait(wait, conn)
        ticket = self._writer.delete(kind, id, conn, version=version, if_seq=if_seq)
        if wait is not None and ticket.accepted:
            self.wait(ticket, wait)
        return ticket

    def delete_where(
        self, filter: Mapping[str, Any], kind: str | None = None, *, dry_run: bool = False
    ) -> int:
        """Delete all records that fit a filter on metadata; returns how many. `dry_run`: only count
        them. A call that was interrupted can be repeated."""
        return self._writer.delete_where(filter, kind, dry_run=dry_run)

    # reading
    def count(self, kind: str | None = None, filter: Mapping[str, Any] | None = None) -> int:
        """The number of records, of a kind or that fit a filter; boxed ones are not counted."""
        check_given(kind=kind)
        return self.store.records.count(self.tenant, kind, read_filter(filter, self.settings))

    def get(self, kind: str, id: str | int) -> Record | None:
        """The current record; None if it does not exist or is boxed."""
        check_name("kind", kind)
        found = self.store.records.get(self.tenant, kind, existing_id(id))
        return None if found is None else typed_record(self._kinds, found)

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
        check_given(kind=kind)
        place = (after.kind, after.id) if isinstance(after, Record) else after
        for part in place or ():
            check_name("after", part, LONGEST_ID)
        found = self.store.records.page(
            self.tenant, kind=kind, embedded=embedded, filter=wanted, after=place, limit=limit
        )
        return [typed_record(self._kinds, record) for record in found]

    def search(
        self,
        query: str | None = None,
        k: int = 10,
        *,
        vector: Sequence[float] | NDArray[Any] | None = None,
        kind: str | Sequence[str] | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
        after: Ticket | None = None,
        wait: float = 5.0,
        rows: bool = False,
        explain: bool = False,
        min_similarity: float | None = None,
        min_relevance: float | None = None,
        offset: int = 0,
        group_by: str | None = None,
        groups: int = 10,
        diversity: float | None = None,
        fields: Sequence[str] | None = None,
        rerank: bool | str | Reranker | None = None,
    ) -> Hits:
        """The best records for a query, a vector, or both.

        `mode`: hybrid, semantic or text. `kind`: one or several. `after`: wait up to `wait` seconds
        until that change is in the index. `rows`: set `hit.row` to the current row of an attached
        table; hits whose row is deleted, or now belongs to another tenant, are omitted. `explain`:
        set `hit.explanation`. `min_similarity`, `min_relevance`: omit hits below. `offset`: skip so
        many hits; pages of the same `k` do not overlap while nothing changes. `group_by`: the best
        `k` hits of each of the best `groups` values of a metadata field. `diversity`: 0 to 1, how
        much hits should differ from each other. `fields`: which of title, text, metadata and
        data to return. `rerank`: a reranker, or its name, that orders the best candidates; True: the one of
        the setting `reranker`, which is also used unless False is given. If it fails, or takes
        longer than `rerank_seconds`, `hits.rerank_error` says why.
        """
        request = read_request(
            self.settings, query, k, vector=vector, kind=kind, mode=mode, filter=filter,
            explain=explain, min_similarity=min_similarity, min_relevance=min_relevance,
            offset=offset, group_by=group_by, groups=groups, diversity=diversity, fields=fields,
            rerank=rerank,
        )  # fmt: skip
        if after is not None:
            self.wait(after, wait)
        hits = self._search.search(request)
        return self.tables.with_rows(self.tenant, hits) if rows else hits

    def similar(
        self,
        kind: str,
        id: str | int,
        k: int = 10,
        *,
        filter: Mapping[str, Any] | None = None,
        min_similarity: float | None = None,
        explain: bool = False,
    ) -> Hits:
        """The records of the same kind that are nearest to a record, by the mean of the vectors of
        its chunks. Raises `InvalidArgument` if it does not exist or is not embedded yet."""
        hits = self.search(
            vector=self._vectors.mean(kind, existing_id(id)), kind=kind, filter=filter,
            k=min(k + 1, self.settings.most_hits), min_similarity=min_similarity, explain=explain,
        )  # fmt: skip
        hits[:] = [hit for hit in hits if hit.id != existing_id(id)][:k]
        return hits

    def vectors(self, kind: str, ids: Iterable[str | int]) -> dict[str, list[ChunkVector]]:
        """The vectors of records, by id and in the order of their chunks, in the version that
        serves searches. They are those that searches use: of the last embedded text, which may be
        older than the record's current one (then `start` and `end` are None). Records that do not
        exist, are boxed, or were never embedded are left out."""
        check_name("kind", kind)
        return self._vectors.read(kind, existing_ids(ids))

    def prepare(self, query: Any, *, kind: Any = None, mode: Any = "hybrid") -> PreparedVectors:
        """The vectors that a search for a query will need, made in advance; see
        `embedding.prepared`."""
        return self._search.prepare(read_request(self.settings, query, 1, kind=kind, mode=mode))

    def wait(self, ticket: Ticket, timeout: float | None = None) -> Job:
        """Wait until a change is in the index. Raises `WaitTimeout` or `JobFailed`."""
        seconds = self.settings.wait_seconds if timeout is None else timeout
        return self.waiter.wait(self.tenant, ticket, seconds)

    def kinds(self) -> dict[str, Rescore]:
        """The kinds of the tenant's records, and how weight and age change their relevance."""
        found = self.store.versions.collections_of(self.tenant)
        return {c.kind: c.rescore for c in sorted(found, key=lambda c: c.kind)}

    def versions(self, *, all_tenants: bool = False) -> list[Version]:
        """The embedding versions of the tenant's kinds, with counts of its records; `all_tenants`:
        of all kinds, with counts of the whole store."""
        return self._lifecycle.list_versions(None if all_tenants else self.tenant)

    # files
    def export(
        self,
        path: str | PathLike[str],
        kind: str | None = None,
        vectors: bool = True,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Exported:
        """Write the tenant's records, with the vectors of those that are embedded, to a Parquet
        file. It appears under its name when it is complete. Boxed records are left out."""
        check_given(kind=kind)
        exporter = Exporter(self.store, self.index, self.tenant)
        return exporter.export(path, kind, vectors=vectors, progress=progress)

    def import_(
        self,
        path: str | PathLike[str],
        *,
        overwrite: bool = False,
        progress: Callable[[int], object] | None = None,
    ) -> Imported:
        """Save the records of an exported file. Vectors of this store's model are taken over, other
        records are embedded. A record that is newer here, or was deleted since, is skipped, unless
        `overwrite` is set. An import that was interrupted can be repeated."""
        loader = Loader(
            self.store, self.settings, self.tenant, self.models, self.tables,
            self.pipeline.served.target_of,
        )  # fmt: skip
        return loader.load(path, overwrite=overwrite, progress=progress)

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
        check_given(version=version, kind=kind)
        made, _ = open_embedder(embedder, self.store, self.settings)
        name = self._lifecycle.begin(made, version, kind, switch=switch)
        return Migration(self._lifecycle, name)

    def migration(self) -> Migration | None:
        """The migration that is in progress or can still be rolled back."""
        name = self._lifecycle.current()
        return None if name is None else Migration(self._lifecycle, name)

    def estimate(
        self, embedder: str | Embedder, *, kind: str | None = None, all_tenants: bool = False
    ) -> Estimate:
        """The cost of `migrate` for the tenant's records, estimated from a sample that is embedded
        once; `all_tenants`: for the whole store, which is what `migrate` changes."""
        made, _ = open_embedder(embedder, self.store, self.settings)
        return estimate(
            self.store, self.models.add(made), self._kinds, self.settings.concurrency, kind,
            None if all_tenants else self.tenant,
        )  # fmt: skip

    def drop_retired(self) -> None:
        """Drop the vectors of retired versions now, not when a worker gets to it."""
        self._lifecycle.drop_retired()

    # working
    def process_all(self, progress: Callable[[int], object] | None = None) -> ProcessResult:
        """Process jobs until none is due. Jobs that are scheduled for later or claimed by other
        workers remain; in an outage, or without an embedder, jobs stay pending. `progress` is
        called with the number of ended jobs."""
        return self.worker().process_all(progress)

    def worker(self, concurrency: int | None = None) -> Worker:
        """A worker for a `with` block: it runs in the background and is drained at the end."""
        if concurrency is not None and concurrency < 1:
            raise InvalidArgument(f"concurrency must be at least 1, not {concurrency}")
        return Worker(self.pipeline, self._upkeep(), self.settings, concurrency)

    def _upkeep(self) -> Upkeep:
        starting = self._backfiller.at_start()
        return Upkeep(self._housekeeping, starting, self._lifecycle.step, self.settings)

    def run_worker(self, concurrency: int | None = None) -> None:
        """Process jobs until SIGTERM or SIGINT, then drain; a second signal stops at once."""
        self.worker(concurrency).run_until_signalled()

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
        check_given(kind=kind)
        return self._backfiller.run(kind, dry_run=dry_run, progress=progress)

    def alerts(self) -> list[Episode]:
        """The raised alerts as of the last housekeeping of any process."""
        return self._housekeeping.alerts.lasting()

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
        updated_at: str | None = None,
        tenant: str | None = None,
        replace: bool = False,
        dry_run: bool = False,
    ) -> Attachment:
        """Index a table of the store's database and keep it in sync: its rows become records of
        `kind`.

        Triggers log every change in the transaction of the writer, whatever program that is;
        workers enqueue existing rows, behind live changes. `text`: a column, several columns, or a
        template such as `"{title}: {body}"`. `updated_at`: the column with the time of the last
        change, from which the age of a record runs. `tenant`: the column with the tenant.
        `dry_run`: only return the SQL, as `.sql` of the result. Records of the kind that are not rows of the table
        are deleted: a kind with records from other sources is rejected, unless `replace` is set.
        """
        check_name("kind", kind)
        planned = attachment(
            table, kind, id, text, metadata,
            title=title, weight=weight, updated_at=updated_at, tenant=tenant, owner=self.tenant,
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
            self.store, self.index, self.tables, self.pipeline.served.cutter_of,
            None if all_tenants else self.tenant, repair=repair, quick=quick, progress=progress,
        )  # fmt: skip
