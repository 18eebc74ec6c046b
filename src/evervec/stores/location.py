"""Where a store is, from the path or URL that names it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

IN_MEMORY = ("memory:", ":memory:")
_DUCKDB = "duckdb:///"


def sqlite_path(given: Any) -> Path | None:
    """The file of an SQLite store; None for other stores."""
    url = store_url(given)
    scheme, found, rest = url.partition("://")
    if not found:
        return None if url in IN_MEMORY else Path(url)
    if scheme != "sqlite" or not rest.startswith("/"):
        return None
    path, _, ask = rest[1:].partition("?")
    return Path(path if ask in ("mode=ro", "immutable=1") else rest[1:])


def store_file(given: Any) -> Path | None:
    """The file of a store; None for one in memory or on a server."""
    url = store_url(given)
    if url.startswith(_DUCKDB):
        return Path(url.removeprefix(_DUCKDB))
    return sqlite_path(given)


def store_url(given: Any) -> str:
    url: str = os.fspath(given or os.environ.get("EVERVEC_STORE") or "evervec.db")
    return url
