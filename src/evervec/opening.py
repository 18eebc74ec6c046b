"""From names and URLs to adapters: the only place that knows them all."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from evervec.embedders.base import Embedder
from evervec.errors import SettingsError
from evervec.indexes.base import Index
from evervec.settings import Settings
from evervec.stores.base import Store

log = logging.getLogger("evervec")

_EMBEDDERS = ("local", "hashing", "noop")


def open_store(given: Any, settings: Settings) -> Store:
    """A path, `sqlite:///path`, `memory:` or `postgresql://…`; default `$EVERVEC_STORE`, else
    ./evervec.db."""
    from evervec.stores.sqlite import SqliteStore

    url = os.fspath(given or os.environ.get("EVERVEC_STORE") or "evervec.db")
    if url in ("memory:", ":memory:"):
        return SqliteStore(None, settings)
    scheme, found, rest = url.partition("://")
    if not found:
        return SqliteStore(Path(url), settings)
    if scheme == "sqlite" and rest.startswith("/"):
        return SqliteStore(Path(rest[1:]), settings)
    if scheme in ("postgresql", "postgres"):
        return _postgres(f"postgresql://{rest}", settings)
    raise SettingsError(
        f"{_without_secrets(url)} is not a store that this version knows: give a path, "
        "sqlite:///path, memory: or postgresql://user@host/database"
    )


def _postgres(url: str, settings: Settings) -> Store:
    try:
        from evervec.stores.postgres import PostgresStore
    except ImportError as error:
        raise SettingsError(
            f"a PostgreSQL store needs the package {error.name}: pip install 'evervec[postgres]'"
        ) from error
    return PostgresStore(url, settings)


def open_index(url: str | None, store: Store, settings: Settings) -> Index:
    """None: the store's own."""
    from evervec.indexes.sqlite import SqliteIndex
    from evervec.stores.sqlite import SqliteStore

    url = url or os.environ.get("EVERVEC_INDEX")
    if url:
        raise SettingsError(
            f"{_without_secrets(url)} is not an index that this version knows: leave index "
            "out to use the store's own"
        )
    if isinstance(store, SqliteStore):
        return SqliteIndex(store.db, settings.clock, settings.cache_mb)
    if store.url.startswith("postgresql:"):
        from evervec.indexes.pgvector import PgvectorIndex
        from evervec.stores.postgres import PostgresStore

        if isinstance(store, PostgresStore):
            return PgvectorIndex(store.db, settings)
    raise SettingsError(f"{store.url} has no index of its own: give one with index=")


def open_embedder(given: str | Embedder, store: Store) -> Embedder:
    """An embedder by name, or the caller's own."""
    if not isinstance(given, str):
        return _checked(given)
    name, _, model = given.partition(":")
    if given == "auto":
        name, _, model = os.environ.get("EVERVEC_EMBEDDER", "auto").partition(":")
    if name == "auto":
        return _automatic(store)
    if name in _EMBEDDERS:
        return _named(name, model)
    raise SettingsError(
        f"there is no embedder {name!r}; there are auto, {', '.join(_EMBEDDERS)}, or give an "
        "object with name, model, dimensions, max_batch and embed(texts)"
    )


def _named(name: str, model: str) -> Embedder:
    if name == "local":
        from evervec.embedders.local import local

        return local(model)
    if name == "hashing":
        from evervec.embedders.hashing import HashingEmbedder

        return HashingEmbedder(int(model)) if model.isdecimal() else HashingEmbedder()
    from evervec.embedders.noop import NoopEmbedder

    return NoopEmbedder()


def _automatic(store: Store) -> Embedder:
    """The model whose vectors the store serves; for a new store the local one if it is installed.
    Where neither can be had, records wait, and nothing else takes its place."""
    served = [c.spec for c in store.collections(None, {}) if c.state == "serving" and c.spec]
    if served and served[0].provider not in _EMBEDDERS:
        log.warning(
            "%s serves vectors of %s %s, which only its own program can make: records wait, and "
            "search answers from text",
            *(store.url, served[0].provider, served[0].model),
        )
        return _named("noop", "")
    name, model = "local", ""
    if served:
        model = str(served[0].dimensions) if served[0].provider == "hashing" else served[0].model
        name = served[0].provider
    try:
        found = _named(name, model)
    except SettingsError as error:
        log.warning("no embedder (%s): records wait, and search answers from text", error)
        return _named("noop", "")
    log.info("embedder: %s %s", found.name, found.model)
    return found


def _checked(embedder: Any) -> Embedder:
    for attribute in ("name", "model", "dimensions", "max_batch", "embed"):
        if not hasattr(embedder, attribute):
            raise SettingsError(
                f"the embedder {type(embedder).__name__} has no {attribute!r}; it needs name, "
                "model, dimensions, max_batch and embed(texts)"
            )
    checked: Embedder = embedder
    return checked


def _without_secrets(url: str) -> str:
    """A URL without user, password and query, where keys may be."""
    scheme, found, rest = url.partition("://")
    if not found:
        return url
    place, _, _ = rest.partition("?")
    _, at, host = place.rpartition("@")
    return f"{scheme}://{'…@' if at else ''}{host}"
