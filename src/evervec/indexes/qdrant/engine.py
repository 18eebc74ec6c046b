"""What the index asks of Qdrant, whether it is a server, the client's local mode or the
embedded engine: a few ways to say a filter, and four things to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypedDict, Unpack

from evervec.errors import IndexUnavailable

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
    "metadata.agent": "keyword",
    "metadata.decision_type": "keyword",
    "metadata.confidence": "float",
    "metadata.valid_from": "float",
}
"""what is filtered and guarded by; `tenant` is a keyword that parts the points"""


class CollectionGone(IndexUnavailable):
    """Qdrant answers, but has no such collection."""


class Stored(NamedTuple):
    """A point as it is kept, without its vector."""

    id: str
    payload: dict[str, Any]


class Found(Protocol):
    """A point as the engine hands it out. Reading its payload may be the dearest part of it."""

    @property
    def payload(self) -> dict[str, Any] | None: ...

    @property
    def score(self) -> float: ...


class Shape(NamedTuple):
    """How a new collection is made."""

    dimensions: int
    quantization: str
    shards: int
    replicas: int


class Ends(TypedDict, total=False):
    """Of what a number lies between."""

    gt: float
    gte: float
    lt: float
    lte: float | None
    """None: there is no such end"""


class Engine(Protocol):
    """Methods raise `IndexUnavailable` when it is away."""

    url: str
    alone: bool
    """nobody else writes to it: calls of this process are all there are"""

    def turn(self) -> AbstractContextManager[None]:
        """Everything that writes does so in a turn. Where the engine is `alone`, turns come one
        after the other, so that looking and writing are one step; elsewhere they overlap, and
        changes carry guards."""
        ...

    def ensure(self, collection: str, shape: Shape) -> None:
        """Make a collection with its payload indexes where it is missing."""

    def has(self, collection: str) -> bool: ...

    def dimensions(self, collection: str) -> int | None:
        """Of its vectors; 0: it has named vectors or none; None: that is not known."""
        ...

    def drop(self, collection: str) -> None:
        """Take it away with all that is in it."""

    def tend(self, collection: str) -> None:
        """What the engine does not do by itself."""

    # filters
    def equals(self, key: str, value: str | bool) -> Any:
        """None: it has no way to say that."""

    def any_of(self, key: str, values: Iterable[int]) -> Any: ...
    def between(self, key: str, **ends: Unpack[Ends]) -> Any: ...
    def empty(self, key: str) -> Any:
        """Absent, null or a list of nothing."""

    def ids(self, ids: Iterable[str]) -> Any: ...
    def all(self, *must: Any, but: Sequence[Any] = ()) -> Any: ...
    def either(self, *should: Any) -> Any: ...

    def only_updates(self) -> bool:
        """Whether it can replace a point without bringing it back."""
        ...

    # changes
    def upsert(
        self,
        points: Sequence[tuple[str, NDArray[np.float32] | None, dict[str, Any]]],
        guard: Any,
        *,
        there: bool,
    ) -> Any:
        """Points by id; those that are there are replaced if they pass the guard. `there`: all
        are, and one that is gone by now stays so. Older servers know neither, and where looking
        and writing are one step there is no need of either."""

    def set_payload(self, payload: dict[str, Any], where: Any) -> Any: ...
    def delete(self, ids: Sequence[str], *guards: Any) -> Any:
        """Those of them that pass the guards."""

    def delete_all(self, where: Any) -> Any:
        """All that pass."""

    # what it does
    def update(self, collection: str, changes: Sequence[Any]) -> None:
        """Make changes, one after the other, in one request; back when they can be read."""

    def scroll(
        self, collection: str, where: Any, fields: Sequence[str], limit: int | None = None
    ) -> list[Stored]:
        """All points that pass, or the first so many."""
        ...

    def query(
        self,
        collection: str,
        vector: NDArray[np.float32],
        where: Any,
        fields: Sequence[str],
        limit: int,
    ) -> Sequence[Found]:
        """The nearest that pass, best first."""
        ...

    def close(self) -> None: ...
