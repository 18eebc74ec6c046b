"""What the loopback server keeps: Qdrant's own engine, asked in the words of its client's models.

The client's local mode would do, but looks at every point for every filter, in Python.
"""

import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import qdrant_edge as edge
from qdrant_client import models

_MODES = {
    models.UpdateMode.UPSERT: edge.UpdateMode.Upsert,
    models.UpdateMode.INSERT_ONLY: edge.UpdateMode.InsertOnly,
    models.UpdateMode.UPDATE_ONLY: edge.UpdateMode.UpdateOnly,
}
_TYPES = {
    "keyword": edge.PayloadSchemaType.Keyword,
    "integer": edge.PayloadSchemaType.Integer,
    "float": edge.PayloadSchemaType.Float,
    "bool": edge.PayloadSchemaType.Bool,
}


class Collections:
    """Collections by name; a `ValueError` says that there is none."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="evervec-qdrant-"))
        self._shards: dict[str, Any] = {}
        self._sizes: dict[str, int] = {}
        self._made = 0
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def exists(self, name: str) -> bool:
        return name in self._shards

    def create(self, name: str, vectors: models.VectorParams) -> bool:
        self._made += 1
        folder = self._folder / str(self._made)
        folder.mkdir()
        size = edge.EdgeVectorParams(size=vectors.size, distance=edge.Distance.Cosine)
        self._sizes[name] = vectors.size
        self._shards[name] = edge.EdgeShard.create(str(folder), edge.EdgeConfig(vectors=size))
        return True

    def size(self, name: str) -> int:
        self._shard(name)
        return self._sizes[name]

    def indexed(self, name: str) -> dict[str, Any]:
        """The payload schema, in the words of the client's models."""
        types = {edge_type: type for type, edge_type in _TYPES.items()}
        found = self._shard(name).info().payload_schema
        return {
            field: {"data_type": types[info.data_type], "points": info.points}
            for field, info in found.items()
        }

    def delete(self, name: str) -> bool:
        self._shards.pop(name).close()
        return True

    def index(self, name: str, field: str, schema: Any) -> None:
        type = schema if isinstance(schema, str) else schema.type
        of = _TYPES[str(getattr(type, "value", type))]
        self._shard(name).update(edge.UpdateOperation.create_field_index(field, of))

    def update(self, name: str, operations: list[Any]) -> None:
        for operation in operations:
            try:
                self._shard(name).update(_operation(operation))
            except Exception as error:  # of no class of its own
                if "dimension error" not in str(error):
                    raise
                raise ValueError(f"Wrong input: {error}") from error

    def scroll(
        self,
        name: str,
        where: models.Filter | None,
        limit: int,
        offset: Any,
        fields: Any,
        *,
        vectors: bool = False,
    ) -> tuple[list[dict[str, Any]], str | None]:
        request = edge.ScrollRequest(
            offset=_id(offset), limit=limit, filter=_filter(where), with_payload=fields,
            with_vector=vectors,
        )  # fmt: skip
        found, after = self._shard(name).scroll(request)
        points = [
            {"id": _said(p.id), "payload": p.payload, "vector": p.vector if vectors else None}
            for p in found
        ]
        return points, None if after is None else _said(after)

    def query(
        self, name: str, vector: list[Any], where: models.Filter | None, limit: int, fields: Any
    ) -> list[dict[str, Any]]:
        request = edge.QueryRequest(
            limit, query=edge.Query.Nearest(vector), filter=_filter(where), with_payload=fields
        )
        return [
            {"id": _said(p.id), "version": 0, "score": p.score, "payload": p.payload}
            for p in self._shard(name).query(request)
        ]

    def payloads(self, name: str) -> list[dict[str, Any]]:
        """All that is in a collection."""
        return [point["payload"] for point in self.scroll(name, None, 100_000, None, True)[0]]

    def _shard(self, name: str) -> Any:
        if name not in self._shards:
            raise ValueError(f"Collection {name} not found")
        return self._shards[name]


def _operation(asked: Any) -> Any:
    if isinstance(asked, models.UpsertOperation):
        given = asked.upsert
        assert isinstance(given, models.PointsList)
        points = [edge.Point(_id(p.id), p.vector, p.payload) for p in given.points]  # type: ignore[arg-type]
        mode = _MODES[given.update_mode or models.UpdateMode.UPSERT]
        return edge.UpdateOperation.upsert_points(points, _filter(given.update_filter), mode)
    if isinstance(asked, models.SetPayloadOperation):
        where = _filter(asked.set_payload.filter)
        assert where is not None
        return edge.UpdateOperation.set_payload_by_filter(where, asked.set_payload.payload)
    assert isinstance(asked, models.DeleteOperation)
    assert isinstance(asked.delete, models.FilterSelector)
    gone = _filter(asked.delete.filter)
    assert gone is not None
    return edge.UpdateOperation.delete_points_by_filter(gone)


def _filter(asked: models.Filter | None) -> edge.Filter | None:
    if asked is None:
        return None
    return edge.Filter(
        must=_conditions(asked.must),
        should=_conditions(asked.should),
        must_not=_conditions(asked.must_not),
    )


def _conditions(asked: Any) -> list[Any] | None:
    return [_condition(one) for one in asked] if asked else None


def _condition(asked: Any) -> Any:
    if isinstance(asked, models.Filter):
        return _filter(asked)
    if isinstance(asked, models.HasIdCondition):
        return edge.HasIdCondition({_id(id) for id in asked.has_id})
    if isinstance(asked, models.IsEmptyCondition):
        return edge.IsEmptyCondition(asked.is_empty.key)
    assert isinstance(asked, models.FieldCondition)
    if isinstance(asked.range, models.Range):
        ends = asked.range.model_dump(exclude_none=True)
        return edge.FieldCondition(asked.key, range=edge.RangeFloat(**ends))
    if isinstance(asked.match, models.MatchAny):
        return edge.FieldCondition(asked.key, match=edge.MatchAny(asked.match.any))
    assert isinstance(asked.match, models.MatchValue)
    value: Any = asked.match.value
    if isinstance(value, bool):
        value = np.bool_(value)  # it takes Python's own for a number
    return edge.FieldCondition(asked.key, match=edge.MatchValue(value))


def _id(given: Any) -> Any:
    return UUID(given) if isinstance(given, str) else given


def _said(id: Any) -> Any:
    return id if isinstance(id, int) else str(id)
