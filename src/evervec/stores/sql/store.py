"""A store composed of its parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from evervec.errors import InvalidArgument
from evervec.settings import Settings
from evervec.stores import base
from evervec.stores.sql.changes import Changes
from evervec.stores.sql.engine import Engine
from evervec.stores.sql.failures import Failures
from evervec.stores.sql.history import History
from evervec.stores.sql.job_writer import JobWriter
from evervec.stores.sql.jobs import Jobs
from evervec.stores.sql.leases import Leases
from evervec.stores.sql.records import Records
from evervec.stores.sql.schema import Schema
from evervec.stores.sql.selection import Selection
from evervec.stores.sql.service import Service
from evervec.stores.sql.shared import FORGOTTEN_AFTER, Shared, Workers
from evervec.stores.sql.streams import Streams
from evervec.stores.sql.tenants import Tenants, default_limits
from evervec.stores.sql.versions import Versions

T = TypeVar("T")


@dataclass(frozen=True)
class Parts:
    """The classes of an engine's parts."""

    writer: type[JobWriter]
    changes: type[Changes]
    records: type[Records]
    leases: type[Leases]
    jobs: type[Jobs] = Jobs
    versions: type[Versions] = Versions
    tenants: type[Tenants] = Tenants


class SqlStore(ABC):
    """The base of the stores: it connects the parts, and does what concerns the whole."""

    parts: ClassVar[Parts]
    schema: ClassVar[Schema]
    poll_seconds = 0.1
    reads_at_once = False
    read_only = False
    is_local = True
    folder: Path | None = None

    def __init__(self, url: str, engine: Engine, settings: Settings) -> None:
        self.url = url
        self.engine = engine
        self.db = engine.db
        self.now, self.mark = engine.now, engine.mark
        self.wake, self.wait = engine.wake, engine.wait
        self.try_write = engine.try_write
        make, shared = self.parts, Shared(engine)
        tenants = make.tenants(engine, default_limits(settings))
        writer = make.writer(engine)
        changes = make.changes(engine, tenants, writer)
        self.changes: base.Changes = changes
        self.records: base.Records = make.records(engine)
        jobs = make.jobs(engine, tenants, writer)
        self.jobs: base.Jobs = jobs
        self.selection: base.Selection = Selection(engine, jobs)
        self.leases: base.Leases = make.leases(engine, tenants, writer, changes)
        self.versions: base.Versions = make.versions(engine, tenants, writer, shared)
        self.tenants: base.Tenants = tenants
        self.shared: base.Shared = shared
        self.workers: base.Workers = Workers(engine)
        self.service: base.Service = Service(engine)
        self.streams: base.Streams = Streams(engine)
        self.history: base.History = History(engine)
        self.failures: base.Failures = Failures(engine)

    def connection(self) -> Any:
        raise InvalidArgument(
            f"{self.url} does not provide connections: open one with your own driver, and pass it "
            "as conn="
        )

    def searching(self, search: Callable[[], T], *, fresh: bool) -> T:
        return search()

    def partition(self, parts: int, progress: Callable[[str, int, int], object]) -> list[str]:
        raise InvalidArgument(f"{self.url} has no partitions: only a PostgreSQL store does")

    def forget_gone(self, spent_before: str) -> None:
        sql = self.engine.sql
        with self.db.writing(durable=False) as conn:
            now = self.engine.moment(conn)
            conn.execute(sql.forget_locks, (now,))
            conn.execute(sql.forget_workers, (now - FORGOTTEN_AFTER,))
            conn.execute(sql.purge_spend, (spent_before,))
            conn.execute(sql.forget_holds, (now,))

    def uninstall(self) -> None:
        self.schema.remove(self.db)

    def maintain(self) -> None:  # noqa: B027
        """Does nothing in engines that need no maintenance."""

    def troubles(self, seconds: float) -> list[str]:
        return []

    @abstractmethod
    def check(self) -> str | None: ...

    def close(self) -> None:
        self.db.close()
