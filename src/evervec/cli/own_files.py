"""The files of an open store, which are no documents: in the folder that it indexes, they change with
every sync."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from evervec.cli.config import FILE

if TYPE_CHECKING:
    from evervec.facade import Evervec

_BESIDE = ("", "-wal", "-shm", "-journal", ".wal", ".tmp")
"""endings of what SQLite and DuckDB keep beside their file"""
_IN_FILES = ("", "sqlite", "duckdb", "lancedb", "qdrant-edge")


def own_files(ev: Evervec) -> frozenset[str]:
    """Paths of the store, of its index and of the settings file in the working directory."""
    places = [FILE]
    for url in (ev.store.url, ev.index.url):
        scheme, found, rest = url.partition("://")
        if not found:
            places.append(url)
        elif scheme in _IN_FILES:
            places.append(
                rest if scheme in ("lancedb", "qdrant-edge") else rest.partition("?")[0][1:]
            )
    paths = [os.fspath(Path(place).resolve()) for place in places]
    return frozenset(path + ending for path in paths for ending in _BESIDE)
