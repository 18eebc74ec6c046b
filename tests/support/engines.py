"""The engines that the conformance suites run on.

A new store, index or embedder registers itself here, and every suite of its contract
runs on it: only tests of an engine's own behaviour name it.
"""

import atexit
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

import evervec
from evervec import Embedder
from evervec.embedders.base import NoopEmbedder
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedders.ollama import OllamaEmbedder
from evervec.embedders.openai import OpenAIEmbedder
from support import postgres
from support.provider import Behaviour, ProviderServer


@dataclass(frozen=True)
class StoreEngine:
    """How a test opens a store in a folder of its own."""

    url: Callable[[Path], str]
    shared: bool = False
    """a second opening sees the same records"""
    connect: Callable[[Path], Any] | None = None
    """the caller's own connection, for `conn=`; None: it is the store that gives one"""
    elsewhere: Callable[[], Any] | None = None
    """a connection to another place than the store's"""
    savepoints: bool = True
    """a call that fails inside the caller's transaction leaves the rest of it alone"""
    clock: Callable[[Path, float], Any] | None = None
    """the clock that rules it, where it is not the process's own"""
    leave: Callable[[Path], None] = lambda _: None


@dataclass(frozen=True)
class IndexEngine:
    """How a test opens an index, and over which stores it works."""

    url: Callable[[Path], str | None]
    stores: tuple[str, ...]
    leave: Callable[[Path], None] = lambda _: None


def _file(folder: Path) -> Path:
    return folder / "store.db"


@cache
def _empty_duckdb() -> bytes:
    """A file with an empty store, which is opened sooner than a new one is made."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "empty.duckdb"
        evervec.open(f"duckdb:///{path}", embedder=NoopEmbedder()).close()
        return path.read_bytes()


def _duckdb(folder: Path) -> str:
    path = folder / "store.duckdb"
    if not path.exists():
        path.write_bytes(_empty_duckdb())
    return f"duckdb:///{path}"


_borrowed: dict[Path, str] = {}


def _database(folder: Path) -> str:
    """The database that stands for a folder."""
    if folder not in _borrowed:
        _borrowed[folder] = postgres.DATABASES.borrow()
    return _borrowed[folder]


def _give_back(folder: Path) -> None:
    postgres.DATABASES.give_back(_borrowed.pop(folder))


def _qdrant(folder: Path) -> str:
    from support import qdrant_server  # here: its import takes longer than that of all else

    return qdrant_server.url_for(folder)


def _leave_qdrant(folder: Path) -> None:
    from support import qdrant_server

    qdrant_server.leave(folder)


STORES = {
    "sqlite": StoreEngine(
        lambda folder: str(_file(folder)),
        shared=True,
        connect=lambda folder: sqlite3.connect(_file(folder)),
        elsewhere=lambda: sqlite3.connect(":memory:"),
    ),
    "postgres": StoreEngine(
        _database,
        shared=True,
        connect=lambda folder: postgres.connect(_database(folder)),
        elsewhere=lambda: postgres.connect(postgres.server_url()),
        clock=lambda folder, now: postgres.DatabaseClock(_database(folder), now),
        leave=_give_back,
    ),
    "duckdb": StoreEngine(
        _duckdb,
        shared=True,
        elsewhere=duckdb.connect,
        savepoints=False,
    ),
    "memory": StoreEngine(lambda _: "memory:"),
}

INDEXES = {
    "sqlite": IndexEngine(lambda _: None, stores=("sqlite", "memory")),
    "duckdb": IndexEngine(lambda _: None, stores=("duckdb",)),
    "pgvector": IndexEngine(lambda _: None, stores=("postgres",)),
    "qdrant": IndexEngine(_qdrant, stores=("sqlite", "postgres"), leave=_leave_qdrant),
    "qdrant-memory": IndexEngine(lambda _: "qdrant://:memory:", stores=("memory",)),
    "qdrant-edge": IndexEngine(
        lambda folder: f"qdrant-edge://{folder / 'edge'}", stores=("sqlite",)
    ),
    "lancedb": IndexEngine(
        lambda folder: f"lancedb://{folder / 'vectors'}", stores=("sqlite", "postgres", "duckdb")
    ),
}


@cache
def _provider() -> ProviderServer:
    """One for all tests of this process, from the first that asks for it."""
    server = ProviderServer(Behaviour(words=True))
    atexit.register(server.close)
    return server


@cache
def _openai() -> Embedder:
    embedder = OpenAIEmbedder(url=_provider().openai_url, key="sk-any", dimensions=256)
    atexit.register(embedder.close)  # before its server
    return embedder


@cache
def _ollama() -> Embedder:
    embedder = OllamaEmbedder(url=_provider().url)
    atexit.register(embedder.close)
    return embedder


@cache
def _st() -> Embedder:
    """A small model with random weights."""
    from evervec.embedders.st import StEmbedder
    from support.small_models import save_small_model

    folder = TemporaryDirectory(prefix="evervec-model-")
    atexit.register(folder.cleanup)
    embedder = StEmbedder(str(save_small_model(Path(folder.name) / "small")), device="cpu")
    atexit.register(embedder.close)
    return embedder


EMBEDDERS: dict[str, Callable[[], Embedder]] = {
    "hashing": HashingEmbedder,
    "noop": NoopEmbedder,
    "ollama": _ollama,
    "openai": _openai,
}
if find_spec("torch") and find_spec("sentence_transformers"):  # `make fleet` installs them
    EMBEDDERS["st"] = _st


def apart(index: object) -> bool:
    """Whether an index lies outside the store's database."""
    return index in INDEXES and index not in ("sqlite", "duckdb", "pgvector")


PAIRS = [(store, index) for index, engine in INDEXES.items() for store in engine.stores]
"""Every store with every index that works over it."""
APART_PAIRS = [pair for pair in PAIRS if apart(pair[1])]
"""Those whose index lies outside the store, so that no transaction covers both."""
OWN_PAIRS = [next(pair for pair in PAIRS if pair[0] == store) for store in STORES]
"""Every store once, over its own index: what tests run on by default."""
USUAL_PAIRS = OWN_PAIRS + [
    (engine.stores[0], index) for index, engine in INDEXES.items() if apart(index)
]
"""Every store over its own index, and every index outside once, for what is about the index."""
SHARED_PAIRS = [pair for pair in PAIRS if STORES[pair[0]].shared]
JOINED_PAIRS = [pair for pair in PAIRS if STORES[pair[0]].elsewhere is not None]
SAVEPOINT_PAIRS = [pair for pair in JOINED_PAIRS if STORES[pair[0]].savepoints]
MAKERS = [name for name in EMBEDDERS if name != "noop"]
"""Embedders that do make vectors."""
