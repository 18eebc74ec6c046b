"""Qdrant's engine inside this process: a folder with a shard for each collection.

Only one process at a time can open a folder; within it, all users of the folder share one engine.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, Unpack
from urllib.parse import quote

import qdrant_edge as edge
from qdrant_edge import FieldCondition, UpdateOperation

from evervec.errors import IndexUnavailable, SettingsError
from evervec.indexes.qdrant.edge_shard import Shard, ShardClosed, was_replaced
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
from evervec.indexes.qdrant.optimizer import Optimizer
from evervec.indexes.writer_lock import ThreadLock
from evervec.stores.paths import make_private_folder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_PAGE = 1000
_RESERVE = 64 << 20
"""bytes of the disk that must stay free: the engine's files are sparse and memory-mapped, so a page
without disk space kills the process with SIGBUS instead of raising an error"""
_GROWTH = 4
"""bytes that may be written for each byte of a point: log, storage and payload indexes (about 2
were measured)"""
_SCHEMAS: dict[str, Any] = {
    "tenant": edge.KeywordIndexParams(is_tenant=True),
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
    "bool": edge.PayloadSchemaType.Bool,
}
_QUANTIZATIONS: dict[str, Callable[[], Any]] = {
    "": lambda: None,
    "scalar": lambda: edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, always_ram=True),
    "binary": lambda: edge.BinaryQuantizationConfig(always_ram=True),
    "product": lambda: edge.ProductQuantizationConfig(compression=edge.CompressionRatio.X16),
}
_open: dict[Path, EdgeEngine] = {}
_opening = threading.Lock()


def open_folder(folder: str, quantization: str) -> EdgeEngine:
    if quantization not in _QUANTIZATIONS:
        raise SettingsError(f"unknown qdrant_quantization {quantization!r}")
    path = Path(folder).absolute()
    with _opening:
        engine = _open.setdefault(path, EdgeEngine(path))
        engine.users += 1
        return engine


class _Update(NamedTuple):
    operation: Any
    points: int = 0
    """that it writes or deletes, as far as is known"""
    size: int = 0
    """bytes of its points"""


class EdgeEngine:
    """The shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"qdrant-edge://{folder}"
        self._writer_lock = ThreadLock(self.url)
        self.alone = True
        self.users = 0
        self._folder = folder
        self._shards: dict[str, Shard] = {}
        self._making = threading.RLock()
        self.optimizer = Optimizer(self.writing)

    def writing(self) -> AbstractContextManager[None]:
        return self._writer_lock.hold()

    # collections
    def ensure(self, collection: str, shape: Shape) -> None:
        with self._making:
            if self.has(collection):
                return
            path = self._path(collection)
            make_private_folder(self._folder)
            path.mkdir(exist_ok=True)
            self._check_space(0)
            config = edge.EdgeConfig(
                vectors=edge.EdgeVectorParams(size=shape.dimensions, distance=edge.Distance.Cosine),
                hnsw_config=edge.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=10000),
                quantization_config=_QUANTIZATIONS[shape.quantization](),
            )
            self._shards[collection] = self._call(lambda: Shard(path, config))

    def has(self, collection: str) -> bool:
        with self._making:
            if collection in self._shards:
                return True
            path = self._path(collection)
            if not was_replaced(path) and (not path.exists() or not any(path.iterdir())):
                return False
            self._check_space(0)  # its log is replayed
            self._shards[collection] = self._call(lambda: Shard(path))
            return True

    def known(self, collection: str) -> Known:
        info = self._ask(collection, lambda shard: shard.info())
        try:
            config = json.loads((self._path(collection) / "edge_config.json").read_text())
            size: int | None = config["vectors"].get("", {"size": 0})["size"]
        except (OSError, ValueError, LookupError, AttributeError):
            size = None  # the engine may change this file in the future
        return Known(size, info.payload_schema.keys())

    def make_index(self, collection: str, field: str, schema: str) -> None:
        made = UpdateOperation.create_field_index(field, _SCHEMAS[schema])
        self.update(collection, [_Update(made)])

    def drop(self, collection: str) -> None:
        with self._making:
            shard = self._shards.pop(collection, None)
            if shard is not None:
                self._call(shard.close)
            shutil.rmtree(self._path(collection), ignore_errors=True)

    def _ask(self, collection: str, ask: Callable[[Any], T]) -> T:
        shard = self._shard(collection)
        return self._call(lambda: shard.ask(ask))

    def _shard(self, collection: str) -> Shard:
        shard = self._shards.get(collection)
        if shard is None:
            raise CollectionGone(f"{self.url} has no collection {collection}")
        return shard

    def _path(self, collection: str) -> Path:
        return self._folder / quote(collection, safe="")

    def _call(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except ShardClosed as error:
            raise CollectionGone(f"{self.url}: {error}") from error
        except Exception as error:  # it has no error classes of its own
            said = str(error).partition("\n")[0][:300]
            held = ": another process has it open" if "WouldBlock" in said else f": {said}"
            raise IndexUnavailable(f"{self.url} cannot be used{held}") from error

    def maintain(self, collection: str) -> None:
        """Optimise it beside the work, if that is due: in a copy, which the engine copies again."""
        shard = self._shard(collection)
        if self._call(shard.check_writes):
            self._check_space(2 * self._call(lambda: _used(shard.folder)))
            self.optimizer.start(shard)

    def _check_space(self, needed: int) -> None:
        free = self._call(lambda: shutil.disk_usage(self._folder).free)
        if free < needed + _RESERVE:
            raise IndexUnavailable(
                f"{self.url} cannot be written: the disk has {free >> 20} MiB free, but "
                f"{(needed + _RESERVE) >> 20} MiB are needed: free some space"
            )

    # filters
    def equals(self, key: str, value: str | bool) -> Any:
        if isinstance(value, bool):
            return None  # its Python binding takes a bool for a number
        return FieldCondition(key, match=edge.MatchValue(value))

    def any_of(self, key: str, values: Iterable[int]) -> Any:
        return FieldCondition(key, match=edge.MatchAny(list(values)))

    def between(self, key: str, **ends: Unpack[Ends]) -> Any:
        return FieldCondition(key, range=edge.RangeFloat(**ends))

    def empty(self, key: str) -> Any:
        return edge.IsEmptyCondition(key)

    def ids(self, ids: Iterable[str]) -> Any:
        return edge.HasIdCondition(set(ids))

    def all(self, *must: Any, but: Sequence[Any] = ()) -> Any:
        return edge.Filter(must=list(must), must_not=list(but) or None)

    def either(self, *should: Any) -> Any:
        return edge.Filter(should=list(should)) if should else self.ids([])

    # changes
    def only_updates(self) -> bool:
        return True

    def upsert(self, points: Sequence[NewPoint], guard: Any, *, there: bool) -> Any:
        made = [
            edge.Point(id, {} if vector is None else _numbers(vector), payload)
            for id, vector, payload in points
        ]
        size = sum(
            len(repr(payload).encode()) + (0 if vector is None else vector.nbytes)
            for _, vector, payload in points
        )
        # no guard needed: writes are serialised, see `writing`
        return _Update(UpdateOperation.upsert_points(made), len(made), size)

    def set_payload(self, payload: dict[str, Any], where: Any) -> Any:
        return _Update(UpdateOperation.set_payload_by_filter(where, payload))

    def delete(self, ids: Sequence[str], *guards: Any) -> Any:
        return _Update(UpdateOperation.delete_points(list(ids)), len(ids))

    def delete_all(self, where: Any) -> Any:
        return _Update(UpdateOperation.delete_points_by_filter(where))

    # operations
    def update(self, collection: str, changes: Sequence[_Update]) -> None:
        shard = self._shard(collection)
        for change in changes:
            self._check_space(_GROWTH * change.size)
            self._call(lambda: shard.update(change.operation, change.points))  # noqa: B023 - called at once

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
            request = edge.ScrollRequest(
                offset=offset, limit=limit or _PAGE, filter=where, with_payload=list(fields),
                with_vector=vectors,
            )  # fmt: skip
            rows, offset = self._ask(collection, lambda shard: shard.scroll(request))  # noqa: B023 - the same
            found += [Stored(str(row.id), row.payload or {}, plain(row.vector)) for row in rows]
            if offset is None or limit:
                return found

    def query(self, collection: str, asked: Nearest) -> Sequence[Found]:
        request = edge.QueryRequest(
            asked.limit, query=edge.Query.Nearest(_numbers(asked.vector)), filter=asked.where,
            with_payload=list(asked.fields),
        )  # fmt: skip
        found: Sequence[Found] = self._ask(collection, lambda shard: shard.query(request))
        return found

    def close(self) -> None:
        """Release one use of the engine; the last one closes the folder."""
        with _opening:
            self.users -= 1
            if self.users == 0:
                _open.pop(self._folder, None)
                self.optimizer.stop()
                for shard in self._shards.values():
                    shard.close()
                self._shards.clear()


def _used(folder: Path) -> int:
    """Bytes on disk: files are sparse."""
    stats = (path.stat() for path in folder.rglob("*"))
    return sum(getattr(stat, "st_blocks", stat.st_size // 512) * 512 for stat in stats)


def _numbers(vector: NDArray[np.float32]) -> Any:
    """The vector in the form that the engine reads fastest: without making a list."""
    return vector.data
