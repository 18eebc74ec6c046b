"""Qdrant through its own client: a server, or the client's local mode."""

from __future__ import annotations

import logging
import math
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar, Unpack
from urllib.parse import urlsplit

from qdrant_client import QdrantClient, models
from qdrant_client.common.client_exceptions import QdrantException
from qdrant_client.http.exceptions import ApiException, UnexpectedResponse

from evervec.errors import IndexUnavailable, SettingsError
from evervec.indexes.qdrant.engine import (
    CollectionGone,
    Ends,
    Found,
    Known,
    Nearest,
    NewPoint,
    Shape,
    Stored,
    plain,
)
from evervec.indexes.writer_lock import ThreadLock
from evervec.model.deadlines import check, current, exceeded
from evervec.runtime.backoff import Breaker
from evervec.settings import Settings

log = logging.getLogger("evervec")
T = TypeVar("T")

_PAGE = 1000
_BREAK_SECONDS = (1.0, 30.0)
_REFUSED = (400, 409, 422)
"""status codes about one request, from a server that works"""
_SCHEMAS: dict[str, Any] = {
    "tenant": models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    "keyword": models.PayloadSchemaType.KEYWORD,
    "integer": models.PayloadSchemaType.INTEGER,
    "float": models.PayloadSchemaType.FLOAT,
    "bool": models.PayloadSchemaType.BOOL,
}
_QUANTIZATIONS: dict[str, Any] = {
    "": None,
    "scalar": models.ScalarQuantization(
        scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
    ),
    "binary": models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True)),
    "product": models.ProductQuantization(
        product=models.ProductQuantizationConfig(compression=models.CompressionRatio.X16)
    ),
}


def connect(url: str, settings: Settings, key: str) -> ClientEngine:
    """`qdrant://host:6333`, `qdrants://host` (TLS) or `qdrant://:memory:`."""
    if settings.qdrant_quantization not in _QUANTIZATIONS:
        raise SettingsError(
            f"qdrant_quantization must be one of {', '.join(filter(None, _QUANTIZATIONS))}, or "
            f"empty, not {settings.qdrant_quantization!r}"
        )
    if url == "qdrant://:memory:":
        return ClientEngine(url, QdrantClient(":memory:"), alone=True)
    parts = urlsplit(url)
    try:
        port = parts.port or 6333
    except ValueError as error:
        raise SettingsError(f"the port of {parts.hostname} is not a number") from error
    if not parts.hostname or parts.username or parts.path.strip("/") or parts.query:
        raise SettingsError(
            "a Qdrant URL is qdrant://host:6333 or qdrants://host; set its key with qdrant_key"
        )
    safe = parts.scheme == "qdrants"
    if key and not safe:
        log.warning("the API key of %s is sent unencrypted: use qdrants://", parts.hostname)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the client warns about the same
        client = QdrantClient(
            host=parts.hostname,
            port=port,
            https=safe,
            api_key=key or None,
            timeout=max(1, round(settings.qdrant_seconds)),
            check_compatibility=False,  # it would call the server too early
            verify=safe,  # otherwise it reads certificates needlessly
        )
    url = f"{parts.scheme}://{parts.hostname}:{port}"
    return ClientEngine(url, client, alone=False, seconds=settings.qdrant_seconds)


class ClientEngine:
    """The local mode is not thread-safe, so its calls are serialised."""

    def __init__(
        self, url: str, client: QdrantClient, *, alone: bool, seconds: float = math.inf
    ) -> None:
        self.url = url
        self._seconds = seconds
        self.alone = alone
        self._client = client
        self._writer_lock = ThreadLock(url) if alone else None
        self._breaker = Breaker(*_BREAK_SECONDS)
        self._one = threading.RLock() if alone else None
        self._known: tuple[int, ...] = ()

    def writing(self) -> AbstractContextManager[None]:
        return self._writer_lock.hold() if self._writer_lock else nullcontext()

    def _call(self, ask: Callable[[], T]) -> T:
        if self._one is not None:
            with self._one:
                try:
                    return ask()
                except (ValueError, RuntimeError) as error:  # it has no error classes of its own
                    gone = CollectionGone if "not found" in str(error) else IndexUnavailable
                    raise gone(f"{self.url} cannot be used: {_said(error)}") from error
        self._breaker.check(IndexUnavailable)
        check()
        try:
            answer = ask()
        except (ApiException, QdrantException, OSError) as error:
            if ended := exceeded():  # says nothing about the server
                raise ended from error
            why = f"Qdrant at {self.url} cannot be used: {_said(error)}"
            if isinstance(error, UnexpectedResponse) and error.status_code == 404:
                raise CollectionGone(why) from error
            if not (isinstance(error, UnexpectedResponse) and error.status_code in _REFUSED):
                self._breaker.failed(why)
            raise IndexUnavailable(why) from error
        self._breaker.worked()
        return answer

    # collections
    def ensure(self, collection: str, shape: Shape) -> None:
        if self.has(collection):
            return
        options: dict[str, Any] = {}
        if shape.shards:
            options["shard_number"] = shape.shards
        if shape.replicas:
            options["replication_factor"] = shape.replicas
        try:
            self._call(
                lambda: self._client.create_collection(
                    collection,
                    vectors_config=models.VectorParams(
                        size=shape.dimensions, distance=models.Distance.COSINE
                    ),
                    hnsw_config=models.HnswConfigDiff(m=16, ef_construct=128),
                    quantization_config=_QUANTIZATIONS[shape.quantization],
                    **options,
                )
            )
        except IndexUnavailable:
            if not self.has(collection):  # otherwise another process just created it
                raise

    def make_index(self, collection: str, field: str, schema: str) -> None:
        self._call(
            lambda: self._client.create_payload_index(
                collection, field, _SCHEMAS[schema], wait=False
            )
        )

    def has(self, collection: str) -> bool:
        return self._call(lambda: self._client.collection_exists(collection))

    def known(self, collection: str) -> Known:
        found = self._call(lambda: self._client.get_collection(collection))
        vectors = found.config.params.vectors
        size = vectors.size if isinstance(vectors, models.VectorParams) else 0
        # the local mode has no payload indexes, and warns about them
        return Known(size, None if self.alone else found.payload_schema.keys())

    def drop(self, collection: str) -> None:
        self._call(lambda: self._client.delete_collection(collection))

    def maintain(self, collection: str) -> None:
        """Nothing to do: a server maintains itself."""

    # filters
    def equals(self, key: str, value: str | bool) -> Any:
        return models.FieldCondition(key=key, match=models.MatchValue(value=value))

    def any_of(self, key: str, values: Iterable[int]) -> Any:
        return models.FieldCondition(key=key, match=models.MatchAny(any=list(values)))

    def between(self, key: str, **ends: Unpack[Ends]) -> Any:
        return models.FieldCondition(key=key, range=models.Range(**ends))

    def empty(self, key: str) -> Any:
        return models.IsEmptyCondition(is_empty=models.PayloadField(key=key))

    def ids(self, ids: Iterable[str]) -> Any:
        return models.HasIdCondition(has_id=list(ids))

    def all(self, *must: Any, but: Sequence[Any] = ()) -> Any:
        return models.Filter(must=list(must), must_not=list(but) or None)

    def either(self, *should: Any) -> Any:
        return models.Filter(should=list(should)) if should else self.ids([])

    # changes
    def _version(self) -> tuple[int, ...]:
        if not self._known:
            version = self._call(lambda: self._client.info().version)
            self._known = tuple(map(int, re.findall(r"\d+", version)[:2]))
        return self._known

    def only_updates(self) -> bool:
        return self._version() >= (1, 17)

    def upsert(self, points: Sequence[NewPoint], guard: Any, *, there: bool) -> Any:
        made = [
            models.PointStruct.model_construct(
                id=id, vector={} if vector is None else vector.tolist(), payload=payload
            )
            for id, vector, payload in points
        ]
        listed = models.PointsList.model_construct(points=made)
        if self._version() >= (1, 16):
            listed.update_filter = self.all(guard)
        if there and self.only_updates():
            listed.update_mode = models.UpdateMode.UPDATE_ONLY
        return models.UpsertOperation.model_construct(upsert=listed)

    def set_payload(self, payload: dict[str, Any], where: Any) -> Any:
        return models.SetPayloadOperation(
            set_payload=models.SetPayload(payload=payload, filter=where)
        )

    def delete(self, ids: Sequence[str], *guards: Any) -> Any:
        return self.delete_all(self.all(self.ids(ids), *guards))

    def delete_all(self, where: Any) -> Any:
        return models.DeleteOperation(delete=models.FilterSelector(filter=where))

    # operations
    def update(self, collection: str, changes: Sequence[Any]) -> None:
        self._call(lambda: self._client.batch_update_points(collection, list(changes), wait=True))

    def scroll(
        self,
        collection: str,
        where: Any,
        fields: Sequence[str],
        limit: int | None = None,
        *,
        vectors: bool = False,
    ) -> list[Stored]:
        found: list[Stored] = []
        offset = None
        while True:
            rows, offset = self._call(
                lambda: self._client.scroll(
                    collection,
                    scroll_filter=where,
                    limit=limit or _PAGE,
                    offset=offset,  # noqa: B023 - called at once
                    with_payload=list(fields),
                    with_vectors=vectors,
                    timeout=self._time_left(),
                )
            )
            found += [Stored(str(row.id), row.payload or {}, plain(row.vector)) for row in rows]
            if offset is None or limit:
                return found

    def _time_left(self) -> int | None:
        """Whole seconds that the server may take, if a deadline allows less than usual."""
        now = current()
        return None if now is None or now.left > self._seconds else max(1, math.ceil(now.left))

    def query(self, collection: str, asked: Nearest) -> Sequence[Found]:
        answer = self._call(
            lambda: self._client.query_points(
                collection,
                query=asked.vector.tolist(),
                query_filter=asked.where,
                limit=asked.limit,
                with_payload=list(asked.fields),
                timeout=self._time_left(),
            )
        )
        return answer.points

    def close(self) -> None:
        self._client.close()


def _said(error: Exception) -> str:
    if isinstance(error, UnexpectedResponse):
        return f"{error.status_code} {error.reason_phrase}"
    return (str(error) or type(error).__name__).partition("\n")[0][:200]
