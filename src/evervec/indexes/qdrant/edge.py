"""Qdrant's engine inside this process: a folder with a shard for each collection.

One process at a time; within it, all that open the same folder share one engine.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from urllib.parse import quote

import qdrant_edge as edge
from qdrant_edge import FieldCondition, UpdateOperation

from evervec.errors import IndexUnavailable, SettingsError
from evervec.indexes.qdrant.engine import PAYLOAD_INDEXES, Ends, Found, Shape, Stored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

_PAGE = 1000
_SCHEMAS: dict[str, Any] = {
    "tenant": edge.KeywordIndexParams(is_tenant=True),
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
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
        raise SettingsError(f"there is no qdrant_quantization {quantization!r}")
    path = Path(folder).absolute()
    with _opening:
        engine = _open.setdefault(path, EdgeEngine(path))
        engine.users += 1
        return engine


class EdgeEngine:
    """The shards of one folder."""

    def __init__(self, folder: Path) -> None:
        self.url = f"qdrant-edge://{folder}"
        self.turn: AbstractContextManager[Any] = threading.Lock()
        self.alone = True
        self.users = 0
        self._folder = folder
        self._shards: dict[str, Any] = {}
        self._making = threading.RLock()

    # collections
    def ensure(self, collection: str, shape: Shape) -> None:
        with self._making:
            if self.has(collection):
                return
            path = self._path(collection)
            path.mkdir(parents=True, exist_ok=True)
            config = edge.EdgeConfig(
                vectors=edge.EdgeVectorParams(size=shape.dimensions, distance=edge.Distance.Cosine),
                hnsw_config=edge.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=10000),
                quantization_config=_QUANTIZATIONS[shape.quantization](),
            )
            shard = self._call(lambda: edge.EdgeShard.create(str(path), config))
            for field, schema in PAYLOAD_INDEXES.items():
                shard.update(UpdateOperation.create_field_index(field, _SCHEMAS[schema]))
            self._shards[collection] = shard

    def has(self, collection: str) -> bool:
        with self._making:
            if collection in self._shards:
                return True
            path = self._path(collection)
            if not path.exists() or not any(path.iterdir()):
                return False
            self._shards[collection] = self._call(lambda: edge.EdgeShard.load(str(path)))
            return True

    def drop(self, collection: str) -> None:
        with self._making:
            shard = self._shards.pop(collection, None)
            if shard is not None:
                self._call(shard.close)
            shutil.rmtree(self._path(collection), ignore_errors=True)

    def _path(self, collection: str) -> Path:
        return self._folder / quote(collection, safe="")

    def _call(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except Exception as error:  # its errors are of no class of their own
            said = str(error).partition("\n")[0][:300]
            held = ": another process has it open" if "WouldBlock" in said else f": {said}"
            raise IndexUnavailable(f"{self.url} cannot be used{held}") from error

    def tend(self, collection: str) -> None:
        self._call(self._shards[collection].optimize)

    # filters
    def equals(self, key: str, value: str | bool) -> Any:
        if isinstance(value, bool):
            return None  # its Python side takes it for a number
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

    def upsert(
        self,
        points: Sequence[tuple[str, NDArray[np.float32] | None, dict[str, Any]]],
        guard: Any,
        *,
        there: bool,
    ) -> Any:
        made = [
            edge.Point(id, {} if vector is None else _numbers(vector), payload)
            for id, vector, payload in points
        ]
        return UpdateOperation.upsert_points(made)  # nobody came between: see `turn`

    def set_payload(self, payload: dict[str, Any], where: Any) -> Any:
        return UpdateOperation.set_payload_by_filter(where, payload)

    def delete(self, ids: Sequence[str], *guards: Any) -> Any:
        return UpdateOperation.delete_points(list(ids))

    def delete_all(self, where: Any) -> Any:
        return UpdateOperation.delete_points_by_filter(where)

    # what it does
    def update(self, collection: str, changes: Sequence[Any]) -> None:
        shard = self._shards[collection]
        for change in changes:
            self._call(lambda: shard.update(change))  # noqa: B023 - called at once

    def scroll(
        self, collection: str, where: Any, fields: Sequence[str], limit: int | None = None
    ) -> list[Stored]:
        found: list[Stored] = []
        offset, shard = None, self._shards[collection]
        while True:
            request = edge.ScrollRequest(
                offset=offset, limit=limit or _PAGE, filter=where, with_payload=list(fields)
            )
            rows, offset = self._call(lambda: shard.scroll(request))  # noqa: B023 - the same
            found += [Stored(str(row.id), row.payload or {}) for row in rows]
            if offset is None or limit:
                return found

    def query(
        self,
        collection: str,
        vector: NDArray[np.float32],
        where: Any,
        fields: Sequence[str],
        limit: int,
    ) -> Sequence[Found]:
        request = edge.QueryRequest(
            limit, query=edge.Query.Nearest(_numbers(vector)), filter=where,
            with_payload=list(fields),
        )  # fmt: skip
        return self._call(lambda: self._shards[collection].query(request))

    def close(self) -> None:
        """Give up one use of it; the last one closes the folder."""
        with _opening:
            self.users -= 1
            if self.users == 0:
                _open.pop(self._folder, None)
                for shard in self._shards.values():
                    shard.close()
                self._shards.clear()


def _numbers(vector: NDArray[np.float32]) -> Any:
    """As the engine reads them fastest: a list would have to be made first."""
    return vector.data
