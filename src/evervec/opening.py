"""Opens a store with its index and embedder, given as names and URLs.

This is the only module that knows all adapters.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.embedders.base import AsyncEmbedder, Embedder
from evervec.errors import SettingsError
from evervec.indexes.base import Index
from evervec.indexes.location import open_located
from evervec.model.records import ModelSpec
from evervec.records.drafts import check_name
from evervec.rerankers.base import Reranker
from evervec.runtime.packages import install_command
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.location import IN_MEMORY, sqlite_path, store_url
from evervec.tables.source import Source
from evervec.telemetry.visible import without_secrets

if TYPE_CHECKING:
    from evervec.facade import Evervec

log = logging.getLogger("evervec")

_EMBEDDERS = ("ollama", "openai", "local", "st", "hashing", "noop")
_OPENAI = "https://api.openai.com/v1"


def open(
    store: Any = None,
    *,
    index: str | None = None,
    embedder: str | Embedder | AsyncEmbedder = "auto",
    tenant: str = "default",
    reindex: bool = False,
    **settings: Any,
) -> Evervec:
    """Open a store; create it if it does not exist. No worker is started.

    `store`: a path or URL; default `$EVERVEC_STORE`, else `./evervec.db`; `memory:` for a store in
    memory. `index`: an index URL, or `own` for the store's own database; default
    `$EVERVEC_INDEX`, else the index that holds the store's vectors. `reindex`: change to that
    index and make all vectors again there. `settings`: any field of `evervec.Settings`.
    """
    from evervec.facade import Evervec

    loaded = Settings.load(settings)
    check_name("tenant", tenant)
    opened = open_store(store, loaded)
    try:
        made, why = open_embedder(embedder, opened, loaded)
        found = open_index(index, opened, loaded, reindex=reindex)
        return Evervec(opened, found, made, tenant, loaded, why, isinstance(embedder, str))
    except BaseException:
        opened.close()
        raise


def open_store(given: Any, settings: Settings) -> Store:
    """Open a path, `sqlite:///path`, `memory:`, `duckdb:///path` or `postgresql://…`; default
    `$EVERVEC_STORE`, else ./evervec.db. `sqlite:///path?mode=ro` is read-only, and with
    `?immutable=1` SQLite creates no files beside it either."""
    from evervec.stores.sqlite import SqliteStore

    url = store_url(given)
    if url in IN_MEMORY:
        return SqliteStore(None, settings)
    if path := sqlite_path(url):
        ask = url.partition("?")[2] if url.startswith("sqlite://") else ""
        read_only, immutable = ask == "mode=ro", ask == "immutable=1"
        return SqliteStore(path, settings, read_only=read_only, immutable=immutable)
    scheme, _, rest = url.partition("://")
    if scheme in ("postgresql", "postgres"):
        with needing_extra("a PostgreSQL store", "postgres"):
            from evervec.stores.postgres import PostgresStore
        return PostgresStore(f"postgresql://{rest}", settings)
    if scheme == "duckdb" and rest.startswith("/"):
        with needing_extra("a DuckDB store", "duckdb"):
            from evervec.stores.duckdb import DuckdbStore
        return DuckdbStore(Path(rest[1:]), settings)
    raise SettingsError(
        f"unknown store URL {without_secrets(url)}: give a path, sqlite:///path, memory:, "
        "duckdb:///path or postgresql://user@host/database"
    )


@contextmanager
def leaving_no_empty_store(given: Any) -> Iterator[None]:
    """Remove the file of a new SQLite store if the block fails before anything is saved."""
    path = sqlite_path(given)
    new = path is not None and not path.exists()
    try:
        yield
    except BaseException:
        if path is not None and new and path.exists():
            from evervec.stores.sqlite.store import remove_empty

            remove_empty(path)
        raise


@contextmanager
def needing_extra(what: str, extra: str) -> Iterator[None]:
    """Name the extra to install if a package is missing."""
    try:
        yield
    except ImportError as error:
        raise SettingsError(
            f"{what} needs the package {error.name}: {install_command(f'evervec[{extra}]')}"
        ) from error


def open_index(
    given: str | None, store: Store, settings: Settings, *, reindex: bool = False
) -> Index:
    """Open a URL, `own` for the store's own database, or with None `$EVERVEC_INDEX`, else the index
    that holds the store's vectors; a new store uses its own database."""
    return open_located(
        store,
        lambda url: _separate_index(url, store, settings) if url else _own_index(store, settings),
        given or os.environ.get("EVERVEC_INDEX"),
        reindex=reindex,
        is_there=lambda url: (folder := _folder_of(url)) is None or folder.exists(),
        priority=settings.backfill_priority,
    )


def _folder_of(url: str) -> Path | None:
    """The folder of an index in files, with links resolved, so that it has one name."""
    scheme, _, place = url.partition("://")
    if scheme not in ("lancedb", "qdrant-edge") or not place or "://" in place:
        return None
    return Path(place).resolve()


def _own_index(store: Store, settings: Settings) -> Index:
    from evervec.indexes.sqlite import SqliteIndex
    from evervec.stores.sqlite import SqliteStore

    if isinstance(store, SqliteStore):
        return SqliteIndex(store, settings.cache_mb)
    if store.url.startswith("postgresql:"):
        from evervec.indexes.pgvector import PgvectorIndex
        from evervec.stores.postgres import PostgresStore

        if isinstance(store, PostgresStore):
            return PgvectorIndex(store.db, store, settings)
    if store.url.startswith("duckdb:"):
        from evervec.indexes.duckdb import DuckdbIndex
        from evervec.stores.duckdb import DuckdbStore

        if isinstance(store, DuckdbStore):
            return DuckdbIndex(store, settings.cache_mb)
    raise SettingsError(f"{store.url} cannot hold vectors itself: give an index with index=")


def _separate_index(url: str, store: Store, settings: Settings) -> Index:
    scheme, _, place = url.partition("://")
    place = str(_folder_of(url) or place)
    with needing_extra(f"a {scheme} index", scheme.rstrip("s")):
        if scheme == "lancedb" and place:
            from evervec.indexes.lancedb import LanceIndex

            return LanceIndex(place, store, settings)
        if scheme in ("qdrant", "qdrants") and place:
            from evervec.indexes.qdrant import QdrantIndex
            from evervec.indexes.qdrant.client import connect

            key = settings.qdrant_key or os.environ.get("QDRANT_API_KEY", "")
            return QdrantIndex(connect(url, settings, key), store, settings)
        if scheme == "qdrant-edge" and place:
            from evervec.indexes.qdrant import QdrantIndex
            from evervec.indexes.qdrant.edge import open_folder

            engine = open_folder(place, settings.qdrant_quantization)
            return QdrantIndex(engine, store, settings)
    raise SettingsError(
        f"unknown index URL {without_secrets(url)}: give lancedb://path, qdrant://host:6333 or "
        "qdrant-edge://path, or omit index to use the store's own database"
    )


class Chosen(NamedTuple):
    """An embedder, and why it was chosen."""

    embedder: Embedder
    why: str


def open_source(store: Store) -> Source | None:
    """Access to the application's tables in the store's database, if the store supports it."""
    from evervec.stores.sqlite import SqliteStore

    if isinstance(store, SqliteStore):
        from evervec.tables.sqlite import SqliteSource

        return SqliteSource(store.db, store)
    if store.url.startswith("postgresql:"):
        from evervec.stores.postgres import PostgresStore
        from evervec.tables.postgres import PostgresSource

        if isinstance(store, PostgresStore):
            return PostgresSource(store.db, store)
    return None


def open_embedder(
    given: str | Embedder | AsyncEmbedder, store: Store, settings: Settings
) -> Chosen:
    """Open an embedder by name, or check the caller's own."""
    if not isinstance(given, str):
        return Chosen(_checked(given), "it was given by the program")
    name, _, model = given.partition(":")
    if given == "auto":
        name, _, model = (os.environ.get("EVERVEC_EMBEDDER") or "auto").partition(":")
    if name == "auto":
        return _automatic(store, settings)
    if name in _EMBEDDERS:
        return Chosen(_named(name, model, settings), "it was given by name")
    raise SettingsError(
        f"unknown embedder {name!r}; choose one of auto, {', '.join(_EMBEDDERS)}, or give an "
        "object with name, model, dimensions, max_batch and embed(texts)"
    )


def _named(name: str, model: str, settings: Settings) -> Embedder:
    if name == "local":
        from evervec.embedders.local import local

        return local(model)
    if name == "ollama":
        from evervec.embedders.ollama import OllamaEmbedder

        return OllamaEmbedder(
            model, url=_ollama_url(settings), characters=settings.ollama_chars, **_remote(settings)
        )
    if name == "openai":
        from evervec.embedders.openai import OpenAIEmbedder

        url = settings.openai_url or os.environ.get("OPENAI_BASE_URL") or _OPENAI
        key = _openai_key(settings)
        if not key and url == _OPENAI:
            raise SettingsError("OpenAI needs a key: set OPENAI_API_KEY, or give openai_key=")
        return OpenAIEmbedder(model, url=url, key=key, **_remote(settings))
    if name == "st":
        from evervec.embedders.st import StEmbedder

        return StEmbedder(
            model,
            device=settings.st_device,
            precision=settings.st_precision,
            dimensions=settings.dimensions,
            text_prompt=settings.st_text_prompt,
            query_prompt=settings.st_query_prompt,
            batch_tokens=settings.st_batch_tokens,
            remote_code=settings.st_remote_code,
        )
    if name == "hashing":
        from evervec.embedders.hashing import HashingEmbedder

        return HashingEmbedder(int(model)) if model.isdecimal() else HashingEmbedder()
    from evervec.embedders.base import NoopEmbedder

    return NoopEmbedder()


def open_reranker(name: str, settings: Settings) -> Reranker:
    """Open a reranker by name: `cohere:MODEL`, `jina:MODEL`, `local:FOLDER`, or the URL of an
    endpoint, with `#MODEL` if it needs to know the model."""
    from evervec.rerankers import endpoint

    provider, _, model = name.partition(":")
    hosted = {"cohere": (endpoint.COHERE, "COHERE_API_KEY", "rerank-v3.5"),
              "jina": (endpoint.JINA, "JINA_API_KEY", "jina-reranker-v2-base-multilingual")}  # fmt: skip
    if provider in hosted:
        url, variable, usual = hosted[provider]
        if not (key := os.environ.get(variable, "")):
            raise SettingsError(f"the reranker {provider!r} needs a key: set {variable}")
        model = model or usual
        return endpoint.EndpointReranker(url, name=f"{provider}:{model}", model=model, key=key)
    if provider in ("http", "https"):
        url, _, model = name.partition("#")
        return endpoint.EndpointReranker(
            url, name=model or "the reranker", model=model, key=settings.rerank_key
        )
    if provider == "local" and model:
        from evervec.rerankers.cross_encoder import CrossEncoder

        return CrossEncoder(Path(model))
    raise SettingsError(
        f"unknown reranker {without_secrets(name)!r}; choose one of cohere:MODEL, jina:MODEL, "
        "local:FOLDER with a cross-encoder in ONNX form, or the URL of an endpoint, such as "
        "http://host/v1/rerank#MODEL; or give an object with name and rerank(query, texts)"
    )


def _remote(settings: Settings) -> dict[str, Any]:
    """The options of all HTTP providers."""
    return {
        "dimensions": settings.dimensions,
        "batch": settings.provider_batch,
        "seconds": settings.provider_seconds,
        "query_seconds": settings.query_seconds,
    }


def _ollama_url(settings: Settings) -> str:
    return settings.ollama_url or os.environ.get("OLLAMA_HOST", "")


def _openai_key(settings: Settings) -> str:
    return settings.openai_key or os.environ.get("OPENAI_API_KEY", "")


def _automatic(store: Store, settings: Settings) -> Chosen:
    """The model whose vectors the store serves, even if it is unavailable: no other model can
    replace it. For a new store, the first available provider."""
    served = _serving_model(store)
    if served is None:
        return _first(settings)
    try:
        return _chosen(open_model(served, settings), "the store serves its vectors")
    except SettingsError as error:
        return _waiting(str(error))


def open_model(spec: ModelSpec, settings: Settings) -> Embedder:
    """The embedder that made a version's vectors."""
    if spec.provider not in _EMBEDDERS:
        raise SettingsError(
            f"the store's vectors were made with {spec.provider} {spec.model}, an embedder that "
            "only the application can provide"
        )
    model = str(spec.dimensions) if spec.provider == "hashing" else spec.model
    return _named(spec.provider, model, replace(settings, dimensions=spec.dimensions))


def needs_program(store: Store) -> ModelSpec | None:
    """The serving model of a store, if only the application can provide its embedder."""
    served = _serving_model(store)
    return served if served and served.provider not in _EMBEDDERS else None


def _serving_model(store: Store) -> ModelSpec | None:
    served = [c.spec for c in store.versions.collections() if c.state == "serving" and c.spec]
    return served[-1] if served else None


def _first(settings: Settings) -> Chosen:
    """The embedder for a new store: Ollama, else OpenAI, else the local model, else none."""
    from evervec.embedders.ollama import answers

    trouble = answers(_ollama_url(settings))
    if trouble is None:
        return _chosen(_named("ollama", "", settings), "an Ollama server is running")
    if _openai_key(settings):
        return _chosen(
            _named("openai", "", settings), "an OpenAI key is set, and no Ollama server is running"
        )
    try:
        return _chosen(
            _named("local", "", settings), "no Ollama server is running, and no OpenAI key is set"
        )
    except SettingsError as error:
        return _waiting(f"{trouble}; no OpenAI key is set (OPENAI_API_KEY); {error}")


def _chosen(embedder: Embedder, why: str) -> Chosen:
    log.info("embedder: %s %s (%s)", embedder.name, embedder.model, why)
    return Chosen(embedder, why)


def _waiting(why: str) -> Chosen:
    log.warning("no embedder: records wait, and searches use text only (%s)", why)
    return Chosen(_named("noop", "", Settings()), why)


def _checked(embedder: Any) -> Embedder:
    for attribute in ("name", "model", "dimensions", "max_batch", "embed"):
        if not hasattr(embedder, attribute):
            raise SettingsError(
                f"the embedder {type(embedder).__name__} lacks {attribute!r}; it needs name, "
                "model, dimensions, max_batch and embed(texts)"
            )
    checked: Embedder = embedder
    return checked
