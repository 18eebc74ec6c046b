"""The engines that the conformance suites run on.

A new store, index or embedder registers itself here, and every suite of its contract
runs on it: nothing in `tests/conformance` names an engine.
"""

import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evervec import Embedder
from evervec.embedders.hashing import HashingEmbedder
from evervec.embedders.noop import NoopEmbedder


@dataclass(frozen=True)
class StoreEngine:
    """How a test opens a store in a folder of its own."""

    url: Callable[[Path], str]
    shared: bool = False
    """a second opening sees the same records"""
    connect: Callable[[Path], Any] | None = None
    """the caller's own connection, for `conn=`"""


@dataclass(frozen=True)
class IndexEngine:
    """How a test opens an index, and over which stores it works."""

    url: Callable[[Path], str | None]
    stores: tuple[str, ...]


def _file(folder: Path) -> Path:
    return folder / "store.db"


STORES = {
    "sqlite": StoreEngine(
        lambda folder: str(_file(folder)),
        shared=True,
        connect=lambda folder: sqlite3.connect(_file(folder)),
    ),
    "memory": StoreEngine(lambda _: "memory:"),
}

INDEXES = {"sqlite": IndexEngine(lambda _: None, stores=("sqlite", "memory"))}

EMBEDDERS: dict[str, Callable[[], Embedder]] = {
    "hashing": HashingEmbedder,
    "noop": NoopEmbedder,
}

PAIRS = [(store, index) for index, engine in INDEXES.items() for store in engine.stores]
"""Every store with every index that works over it."""
SHARED_PAIRS = [pair for pair in PAIRS if STORES[pair[0]].shared]
JOINED_PAIRS = [pair for pair in PAIRS if STORES[pair[0]].connect is not None]
MAKERS = [name for name, make in EMBEDDERS.items() if make().dimensions]
"""Embedders that do make vectors."""
