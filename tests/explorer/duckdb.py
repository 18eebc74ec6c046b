"""A real DuckDB file under a world: one process, in which every actor is a thread.

All writers of a process take turns there, so a transaction of evervec is one step; only an
application's own, on a connection of its own, stays open while others go on, and they wait for it.
Before each run the file is a copy of the one that was kept.
"""

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar
from unittest import mock

from evervec.errors import StoreError
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.duckdb import DuckdbStore
from evervec.stores.duckdb.connections import Connections, Session
from explorer.disk import Actor, calling_method
from explorer.steps import AWAY, GO, LOST, STORE, Access, Step
from support.engines import _empty_duckdb


class DuckdbDisk:
    """The file, and the stores that have it open."""

    options: ClassVar[dict[str, Any]] = {"busy_seconds": 0.2}
    """of the world's clock: whoever waits for a transaction looks again every 0.01"""
    is_open = False
    seen = 0
    follows = may_lose = False
    held_by: Actor | None = None

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="explorer-duckdb-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._kept = _empty_duckdb()
        self._path = self._folder / "store.duckdb"
        self._path.write_bytes(self._kept)
        self.on_sync: Callable[[], None] = lambda: None
        self._stores: list[DuckdbStore] = []
        self._callers: list[CallersTransaction] = []

    # between runs
    def _close(self) -> None:
        for caller in self._callers:
            caller.roll_back()
        for store in self._stores:
            store.close()
        self._callers, self._stores = [], []

    def keep(self) -> None:
        """What is stored now is what `reset` goes back to."""
        self._close()  # which writes the log into the file
        self._kept = self._path.read_bytes()

    def reset(self) -> bool:
        self._close()
        for path in self._folder.glob("store.duckdb*"):
            path.unlink()
        self._path.write_bytes(self._kept)
        return True

    def end(self, processes: Iterable[Actor]) -> None:
        self._close()

    # during a run
    def watch(self, *, follows: bool) -> None:
        """Nothing is noted."""

    def begin(self) -> None:
        """What is touched is not noted."""

    def touched(self) -> Access:
        return Access()

    def cut_power(self) -> None:
        raise NotImplementedError("every commit is synced")

    def open_store(self, process: Actor, settings: Settings) -> Store:
        def made(path: Path, busy_seconds: float) -> SteppedConnections:
            return SteppedConnections(self, process, path, busy_seconds)

        with mock.patch("evervec.stores.duckdb.store.Connections", made):
            store = DuckdbStore(self._path, settings)
        store.db.file.writer.execute("set threads = 1")  # for so little, others only disturb
        self._stores.append(store)
        return store

    def is_open_for(self, process: Actor) -> bool:
        return self.is_open

    def lets(self, process: Actor) -> bool:
        return True  # who waits for a transaction sleeps, which is a step

    def unblock(self, waiting: Sequence[Actor]) -> bool:
        return False

    def died(self, process: Actor) -> None:
        """All of them are one process."""

    def caller(self, process: Actor) -> "CallersTransaction":
        made = CallersTransaction(self, self._stores[-1].connection())
        self._callers.append(made)
        return made


class CallersTransaction:
    """A transaction of the application's own, on a connection that the store gave."""

    def __init__(self, disk: DuckdbDisk, conn: Any) -> None:
        self._disk = disk
        self._conn = conn
        self._is_over = False
        conn.execute("begin")

    @contextmanager
    def joined(self) -> Iterator[Any]:
        """Inside, the connection may be given to evervec."""
        self._disk.is_open = True
        try:
            yield self._conn
        finally:
            self._disk.is_open = False

    def commit(self, then: Callable[[], None]) -> None:
        """`then`: what is so as soon as it is committed."""
        self._is_over = True
        self._conn.execute("commit")
        then()

    def roll_back(self) -> None:
        if not self._is_over:
            self._is_over = True
            self._conn.execute("rollback")


class SteppedConnections(Connections):
    """The connections of one actor, each transaction a step that the scheduler allows."""

    def __init__(self, disk: DuckdbDisk, process: Actor, path: Path, busy_seconds: float) -> None:
        super().__init__(path, busy_seconds)
        self.disk = disk
        self._process = process

    @contextmanager
    def reading(self) -> Iterator[Session]:
        if not self.disk.is_open:
            action = self._process.ask(Step(STORE, calling_method(), False))
            if action != GO:
                raise StoreError("the store cannot be reached")
        with super().reading() as session:
            yield session

    @contextmanager
    def writing(self, *, durable: bool, conn: Any = None) -> Iterator[Session]:
        if conn is not None:
            with super().writing(durable=durable, conn=conn) as joined:
                yield joined
            return
        what = calling_method()
        action = self._process.ask(Step(STORE, what, True))
        if action == AWAY:
            raise StoreError("the store cannot be reached")
        with super().writing(durable=durable) as session:
            self.disk.is_open = True
            try:
                yield session
            finally:
                self.disk.is_open = False
        self._process.committed(what)
        if action == LOST:
            raise StoreError("the store did not answer")
