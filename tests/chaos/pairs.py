"""The stores and indexes under fault, each with servers of its own that may be crashed."""

import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psycopg

import evervec
from chaos.actors import MODELS, TENANTS
from evervec import Evervec
from evervec.embedders.openai import OpenAIEmbedder
from support import fault_disk, postgres
from support.places import Place, connect
from support.processes import until
from support.provider import EVERY_TEXT, Behaviour
from support.provider_process import ProviderProcess
from support.qdrant_server import QdrantServer
from support.stress import SETTINGS
from support.table_writer import Table

PAIRS = ("postgresql+qdrant", "postgresql+pgvector", "sqlite+lancedb", "sqlite")
LEASE = 1.0
FINE = Behaviour(words=True, latency=0.15)
"""a provider whose vectors the oracle can make itself; it takes its time, so that a worker that
was stopped meets others which are at work for the same records"""
AT_ONCE = FINE.changed({"latency": 0.0})
BAD_DAYS: dict[str, Callable[[], dict[str, Any]]] = {
    "provider: down": lambda: {"down": True},
    "provider: 429": lambda: {"storm_until": time.time() + 2.0},
    "provider: 500": lambda: {"fail": EVERY_TEXT},
    "provider: 502 of a proxy": lambda: {"proxy": EVERY_TEXT},
    "provider: hangs": lambda: {"hang": EVERY_TEXT},
    "provider: too few vectors": lambda: {"wrong_count": EVERY_TEXT},
    "provider: NaN": lambda: {"nan": EVERY_TEXT},
    "provider: half an answer": lambda: {"truncated": EVERY_TEXT},
    "provider: connection cut": lambda: {"cut": EVERY_TEXT},
    "provider: slow": lambda: {"latency": 0.7},
}


class Pair:
    """A store with its index and a provider, and the faults that these can have."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._cleanup = ExitStack()
        self.provider = self._cleanup.enter_context(ProviderProcess(FINE))
        self.settings: dict[str, Any] = {
            **SETTINGS, "lease_seconds": LEASE, "max_attempts": 10, "add_batch": 5, "batch_size": 3,
            "openai_url": self.provider.openai_url, "openai_key": "sk-any",
            "provider_seconds": 1.5, "query_seconds": 1.5, "connect_seconds": 2.0,
            "qdrant_seconds": 3.0, "backfill_priority": 0, "drain_seconds": 5.0,
        }  # fmt: skip
        store, _, index = name.partition("+")
        self._server: postgres.Server | None = None
        self._disk: fault_disk.SmallDisk | None = None
        self._qdrant: QdrantServer | None = None
        self.store = self._postgres() if store == "postgresql" else self._file()
        self.index = {"lancedb": f"lancedb://{self._on_disk / 'vectors'}"}.get(index)
        if index == "qdrant":
            self._qdrant = QdrantServer()
            self._cleanup.callback(self._qdrant.stop)
            self.index = self._qdrant.url
        self.table = Table(self.store, random.Random(0), TENANTS)

    def _postgres(self) -> str:
        # its own user has to reach it, so it cannot be in a folder of ours
        name = f"evervec-chaos-{os.getpid()}-{self.name.rpartition('+')[2]}"
        folder = Path(tempfile.gettempdir()) / name
        settings = {"max_connections": "200", "wal_writer_delay": "'10s'", "fsync": "off"}
        self._server = postgres.Server(folder, **settings)
        self._cleanup.callback(postgres.remove, folder)
        self._cleanup.callback(self._server.stop)
        postgres.execute(self._server.url, "create extension if not exists vector")
        return self._server.url

    def _file(self) -> str:
        if fault_disk.mounts():
            self._disk = self._cleanup.enter_context(fault_disk.mounted(self.folder / "disk"))
        return str(self._on_disk / "store.db")

    @property
    def _on_disk(self) -> Path:
        return self._disk.folder if self._disk else self.folder

    @property
    def place(self) -> Place:
        return self.store if self._server else Path(self.store)

    def begin(self) -> None:
        """The store with its first model, some records of each tenant, and an attached table."""
        self.table.create()
        name, dimensions = MODELS[0]
        first = OpenAIEmbedder(
            name, url=self.provider.openai_url, key="sk-any", dimensions=dimensions
        )
        with evervec.open(self.store, index=self.index, embedder=first, **self.settings) as ev:
            ev.attach("items", kind=self.table.kind, text="body", tenant="team")
            for tenant in TENANTS:
                ev.of(tenant).add("note", "here before all others", id="gone")
            ev.process_all()
            for tenant in TENANTS:
                ev.of(tenant).delete("note", "gone")
        first.close()

    def hurry(self, *, hurried: bool) -> None:
        """Whether the provider answers at once: the judge asks it often, and one after the other."""
        self.provider.behaviour = AT_ONCE if hurried else FINE

    def open(self) -> Evervec:
        return evervec.open(self.store, index=self.index, embedder="auto", **self.settings)

    # faults: each returns when it is over
    def faults(self) -> dict[str, Callable[[random.Random], None]]:
        found = {name: self._provider_fault(day) for name, day in BAD_DAYS.items()}
        if self._server:
            found["PostgreSQL: crash"] = self._crash
            found["PostgreSQL: backend killed"] = self._kill_backend
            found["PostgreSQL: connections cut"] = self._cut_connections
        else:
            found["SQLite: locked by a stranger"] = self._lock
        if self._qdrant:
            found["Qdrant: restart"] = self._restart_qdrant
            found["Qdrant: answers lost"] = self._lose_answers
        if self._disk:
            found["disk full"] = self._fill_disk
        return found

    def _provider_fault(self, day: Callable[[], dict[str, Any]]) -> Callable[[random.Random], None]:
        def strike(chance: random.Random) -> None:
            self.provider.behaviour = FINE.changed(day())
            time.sleep(chance.uniform(0.3, 2.5))
            self.provider.behaviour = FINE

        return strike

    def _crash(self, chance: random.Random) -> None:
        """An immediate shutdown: what was not synced is gone, and recovery is as after a crash."""
        assert self._server is not None
        pid = self._server.pid
        os.kill(pid, signal.SIGQUIT)
        until(lambda: not Path(f"/proc/{pid}").exists(), "the server to be gone")
        time.sleep(chance.uniform(0.0, 1.5))
        self._server.start()

    def _kill_backend(self, chance: random.Random) -> None:
        """The server takes this for a crash, and restarts all of its processes."""
        backends = self._ask(
            "select pid from pg_stat_activity where application_name = 'evervec' "
            "and pid <> pg_backend_pid() and backend_type = 'client backend'"
        )
        if backends:
            with suppress(ProcessLookupError):
                os.kill(chance.choice(backends)[0], signal.SIGKILL)
        until(self._answers, "the server to be back")

    def _cut_connections(self, chance: random.Random) -> None:
        share = chance.choice((0.3, 1.0))
        self._ask(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() "
            f"and backend_type = 'client backend' and random() < {share}"
        )

    def _ask(self, query: str) -> list[tuple[Any, ...]]:
        assert self._server is not None
        return postgres.execute(self._server.url, query)

    def _answers(self) -> bool:
        with suppress(psycopg.Error):
            return bool(self._ask("select 1"))
        return False

    def _lock(self, chance: random.Random) -> None:
        conn = connect(self.place)
        try:
            conn.isolation_level = None
            conn.execute("begin immediate")
            time.sleep(chance.uniform(0.3, 1.5 * LEASE))
            conn.execute("rollback")
        finally:
            conn.close()

    def _restart_qdrant(self, chance: random.Random) -> None:
        """What was under way is done, and nobody is told."""
        assert self._qdrant is not None
        self._qdrant.cut = lambda _method, _path: True
        self._qdrant.stop()
        time.sleep(chance.uniform(0.1, 2.0))
        self._qdrant.cut = lambda _method, _path: False
        self._qdrant.start()

    def _lose_answers(self, chance: random.Random) -> None:
        assert self._qdrant is not None
        dice = random.Random(chance.random())
        self._qdrant.cut = lambda _method, _path: dice.random() < 0.5
        time.sleep(chance.uniform(0.3, 2.0))
        self._qdrant.cut = lambda _method, _path: False

    def _fill_disk(self, chance: random.Random) -> None:
        assert self._disk is not None
        self._disk.fill(leave=chance.choice((0, 8192, 65536)))
        time.sleep(chance.uniform(0.2, 1.5))
        self._disk.clear()

    def close(self) -> None:
        self._cleanup.close()
