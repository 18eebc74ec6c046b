"""What a process does in the background, for all tenants, and how its parts are put together."""

from __future__ import annotations

from collections.abc import Mapping

from evervec.embedding.registry import EmbedderRegistry
from evervec.indexes.base import Index
from evervec.maintenance.housekeeping import Housekeeping
from evervec.queue.queue import Queue
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.tables.tables import Tables
from evervec.versions.backfill import Backfiller
from evervec.versions.lifecycle import VersionLifecycle
from evervec.worker.pipeline import Pipeline
from evervec.worker.push import Dispatcher
from evervec.worker.reader import RecordReader
from evervec.worker.served import ServedVersions
from evervec.worker.upkeep import Upkeep
from evervec.worker.worker import Worker


class Background:
    """The stages of workers, and the tasks beside them: backfill, migrations, housekeeping."""

    def __init__(
        self,
        store: Store,
        index: Index,
        models: EmbedderRegistry,
        kinds: Mapping[str, Kind],
        tables: Tables,
        reader: RecordReader,
        queue: Queue,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self.served = ServedVersions(store, index, models, kinds)
        self.pipeline = Pipeline(store, index, models, self.served, queue, tables, reader, settings)
        self.backfiller = Backfiller(store, self.pipeline, kinds, settings)
        self.lifecycle = VersionLifecycle(
            store, index, models, self.backfiller, self.served.cutter_of, queue.worker, settings
        )
        self.housekeeping = Housekeeping(store, index, queue, tables, models, settings)
        self.dispatcher = Dispatcher(self.pipeline, self._upkeep(), settings)

    def worker(self, concurrency: int | None) -> Worker:
        return Worker(self.pipeline, self._upkeep(), self._settings, concurrency)

    def _upkeep(self) -> Upkeep:
        starting = self.backfiller.at_start()
        return Upkeep(self.housekeeping, starting, self.lifecycle.step, self._settings)
