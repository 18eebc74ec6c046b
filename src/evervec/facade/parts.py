"""The parts of an open store, and how they are put together."""

from __future__ import annotations

from typing import Any

from evervec.embedders.base import Embedder
from evervec.embedding.provider import Provider
from evervec.embedding.registry import EmbedderRegistry
from evervec.indexes.base import Index
from evervec.maintenance.housekeeping import Housekeeping, Upkeep
from evervec.opening import open_model, open_reranker, open_source
from evervec.queue.management import worker_name
from evervec.queue.queue import Queue
from evervec.queue.recorder import Recorder
from evervec.queue.ticket_waiter import TicketWaiter
from evervec.records.change_streams import ChangeStreams
from evervec.records.kinds import Kind
from evervec.records.writer import RecordWriter
from evervec.search.reranker import RerankerRegistry
from evervec.search.search import Search
from evervec.search.vectors import VectorReader
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.tables.tables import Tables
from evervec.telemetry.visible import guard_logs
from evervec.versions.backfill import Backfiller
from evervec.versions.lifecycle import VersionLifecycle
from evervec.worker.pipeline import Pipeline
from evervec.worker.push import Dispatcher
from evervec.worker.reader import RecordReader

guard_logs()


class Parts:
    """What the methods of `Evervec` work with, for one tenant."""

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
        recorder = self._recorder = Recorder(store, worker_name())
        self.provider = Provider(embedder, store, settings, recorder)
        models = self.models = EmbedderRegistry(
            self.provider, store, settings, open_model, recorder
        )
        tables = self.attachments = Tables(open_source(store), store, settings)
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
            self.store, self.settings, tenant, self._kinds, self.models, self.attachments,
            lambda kind: self.pipeline.served.target_of(kind),  # noqa: PLW0108 - it is made later
        )  # fmt: skip
        self.streams = ChangeStreams(self.store, self.settings, tenant, self.attachments)
        self._search = Search(
            self.store, self.index, self.models, self._kinds, self.settings, tenant,
            self._rerankers,
        )  # fmt: skip
        self._vectors = VectorReader(self.store, self.index, tenant)

    def close(self) -> None:
        self._housekeeping.alerts.wait()
        self._recorder.flush()
        self.index.close()
        self.store.close()
        self.models.close()
        self._rerankers.close()
        if self._opened_embedder and hasattr(self.embedder, "close"):
            self.embedder.close()

    def queue_of(self, tenant: str | None) -> Queue:
        """The queue of one tenant, or, with None, of all tenants."""
        return Queue(
            self.store, self.settings, tenant, self._kinds, self.models, self._reader.content,
            self._recorder,
        )  # fmt: skip

    def reads_fields(self, kind: str) -> bool:
        """Whether the records of a kind are objects with fields, by the kind that this process
        registered; else they have a text and the other arguments of `add`."""
        known = self._kinds.get(kind)
        return known is not None and known.reads_fields

    def connection(self) -> Any:
        """A connection to the store's database, to write your own data and evervec's in one
        transaction: pass it as `conn=`, then commit. Only DuckDB needs it, because no other process
        can open the file; for other stores open a connection with your own driver."""
        return self.store.connection()

    def _upkeep(self) -> Upkeep:
        starting = self._backfiller.at_start()
        return Upkeep(self._housekeeping, starting, self._lifecycle.step, self.settings)
