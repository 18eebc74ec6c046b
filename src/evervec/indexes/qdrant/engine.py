"""The operations that the index needs from Qdrant, implemented for a server, the client's local
mode and the embedded engine: filters, changes and queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack

from evervec.errors import IndexUnavailable
from evervec.stores.notes import FieldType

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PAYLOAD_INDEXES = {
    "tenant": "tenant",
    "kind": "keyword",
    "version": "integer",
    "record": "integer",
    "seq": "integer",
    "removed_at": "float",
    "weight": "float",
}
"""fields used in guards and by every search; `tenant` is a keyword that partitions the points"""
FIELD_INDEXES: dict[FieldType, str] = {"text": "keyword", "number": "float", "boolean": "bool"}
"""for the metadata fields that kinds declare"""


class CollectionGone(IndexUnavailable):
    """Qdrant answers, but has no such collection."""


class Stored(NamedTuple):
    """A stored point."""

    id: str
    payload: dict[str, Any]
    vector: Sequence[float] | None = None
    """if it was requested, and the point has one"""


class NewPoint(NamedTuple):
    """A point to write; a tombstone has no vector."""

    id: str
    vector: NDArray[np.float32] | None
    payload: dict[str, Any]


class Nearest(NamedTuple):
    """A search by vector."""

    vector: NDArray[np.float32]
    where: Any
    """the filter that points must pass"""
    fields: Sequence[str]
    """of the payload to return"""
    limit: int


class Found(Protocol):
    """A point as the engine returns it. Reading its payload may be the most expensive part."""

    @property
    def payload(self) -> dict[str, Any] | None: ...

    @property
    def score(self) -> float: ...


class Known(NamedTuple):
    """A collection as it is."""

    dimensions: int | None
    """of its vectors; 0: it has named vectors or none; None: unknown"""
    indexed: Set[str] | None
    """the fields that have a payload index; None: the engine has no such indexes"""


class Shape(NamedTuple):
    """The options of a new collection."""

    dimensions: int
    quantization: str
    shards: int
    replicas: int


class Ends(TypedDict, total=False):
    """The ends of a range of numbers."""

    gt: float
    gte: float
    lt: float
    lte: float | None
    """None: no such end"""


def plain(vector: Any) -> Sequence[float] | None:
    """A point's vector as an engine returns it; None: a tombstone's, which has none."""
    found: Sequence[float] | None = vector if isinstance(vector, list) and vector else None
    return found


class Engine(Protocol):
    """A Qdrant engine. Methods raise `IndexUnavailable` when it cannot be reached."""

    url: str
    alone: bool
    """there are no other writers: all calls come from this process"""

    def writing(self) -> AbstractContextManager[None]:
        """Every write happens in this block. If the engine is `alone`, the blocks are serialised, so
        that reading and writing are one atomic step; otherwise they overlap, and changes have
        guards."""
        ...

    def ensure(self, collection: str, shape: Shape) -> None:
        """Create a collection if it does not exist."""

    def has(self, collection: str) -> bool: ...

    def known(self, collection: str) -> Known: ...

    def make_index(self, collection: str, field: str, schema: str) -> None:
        """Create a payload index, of points that exist in the background; `schema`: tenant,
        keyword, integer, float or bool."""

    def drop(self, collection: str) -> None:
        """Drop a collection with its contents."""

    def maintain(self, collection: str) -> None:
        """Maintenance that the engine does not do by itself."""

    # filters
    def equals(self, key: str, value: str | bool) -> Any:
        """None: the engine cannot express it."""

    def any_of(self, key: str, values: Iterable[int]) -> Any: ...
    def between(self, key: str, **ends: Unpack[Ends]) -> Any: ...
    def empty(self, key: str) -> Any:
        """Absent, null or an empty list."""

    def ids(self, ids: Iterable[str]) -> Any: ...
    def all(self, *must: Any, but: Sequence[Any] = ()) -> Any: ...
    def either(self, *should: Any) -> Any: ...

    def only_updates(self) -> bool:
        """Whether it can replace a point without recreating a deleted one."""
        ...

    # changes
    def upsert(self, points: Sequence[NewPoint], guard: Any, *, there: bool) -> Any:
        """Write points by id; existing points are replaced only if they pass the guard. `there`:
        all points exist, and one deleted in the meantime stays deleted. Older servers support
        neither; where reading and writing are one atomic step, neither is needed."""

    def set_payload(self, payload: dict[str, Any], where: Any) -> Any: ...
    def delete(self, ids: Sequence[str], *guards: Any) -> Any:
        """Delete the points that pass the guards."""

    def delete_all(self, where: Any) -> Any:
        """Delete all points that pass."""

    # operations
    def update(self, collection: str, changes: Sequence[Any]) -> None:
        """Apply changes in order, in one request; returns when they can be read."""

    def scroll(
        self,
        collection: str,
        where: Any,
        fields: Sequence[str],
        limit: int | None = None,
        *,
        vectors: bool = False,
    ) -> list[Stored]:
        """All points that pass, or the first `limit`; with their vectors if `vectors` is set."""
        ...

    def query(self, collection: str, asked: Nearest) -> Sequence[Found]:
        """The nearest points that pass, best first."""
        ...

    def close(self) -> None: ...
