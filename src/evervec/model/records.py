"""Records, their chunks and points, search hits, and embedding versions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from evervec.model.explanations import Explanation
from evervec.model.results import Results

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it is now."""

    tenant: str
    kind: str
    id: str
    seq: int
    title: str | None
    text: str
    metadata: dict[str, Any]
    weight: float
    created_at: datetime
    updated_at: datetime
    embedded: bool
    """its current version is in the index"""
    data: Any = None
    """the object of its kind, if it was not added as plain text: of the kind's model where that is
    registered and fits, else as JSON gives it"""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a claimed job, for callers that work the queue themselves."""

    title: str | None
    text: str
    metadata: Mapping[str, Any]
    weight: float
    draft: Any = field(repr=False, default=None)
    """the record that becomes visible when the job is finished with it"""


class Chunk(NamedTuple):
    """A piece of a record's text, identified by the hash of what is embedded for it."""

    hash: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True, eq=False)
class ChunkVector:
    """A chunk of a record and its vector, as `vectors` returns it."""

    position: int
    """of the chunk in the record, from 0"""
    start: int | None
    """where the chunk starts in the record's text; None if the record changed since"""
    end: int | None
    vector: NDArray[np.float32]
    """of length one"""


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """Vectors that the caller made, to add a record with them: one for each of its chunks. A record
    of one chunk may have a single vector. They need not have length one."""

    model: str
    """the model that made them, by its own name or by that of its version in the store"""
    vectors: Any
    """an array or lists of numbers; also texts, each the base64 of little-endian 32-bit floats"""


class Point(NamedTuple):
    """A chunk's vector to be written to an index."""

    hash: bytes
    position: int
    text: str
    vector: NDArray[np.float32]


@dataclass(slots=True)
class Change:
    """The desired points of one record in one collection, as of `seq`.

    After it the record has exactly the points in `points` and `kept`; a change with neither removes
    the record. `kept` names points that are already in the index.
    """

    record: int
    version: int
    tenant: str
    kind: str
    id: str
    seq: int
    points: Sequence[Point] = ()
    kept: Mapping[bytes, int] = field(default_factory=dict)
    """position by hash"""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    updated_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result."""

    kind: str
    id: str
    title: str | None
    text: str
    """the best chunk"""
    similarity: float | None
    """cosine; None for a hit found by text only"""
    relevance: float
    """0 to 1, the sort key of the hits: what vectors and words, or a reranker, say of it, weight and
    age"""
    metadata: dict[str, Any]
    via: str
    """"semantic", "text", or "hybrid" for a hit that both found"""
    row: Mapping[str, Any] | None = None
    """the row of an attached table, if the search requested rows"""
    explanation: Explanation | None = None
    """how the relevance was calculated, if the search asked for it"""
    group: Any = None
    """the value of the metadata field by which the search groups"""
    data: Any = None
    """the object of its kind, as `Record.data`"""


class Records(Results[Record]):
    """A page of records."""

    _noun = "record"
    _columns = (
        "tenant", "kind", "id", "seq", "title", "text", "metadata", "weight", "created_at",
        "updated_at", "embedded",
    )  # fmt: skip
    _shown = ("kind", "id", "embedded")


class Hits(Results[Hit]):
    """Search results, best first, and how they were found."""

    _noun = "hit"
    _columns = ("kind", "id", "title", "text", "similarity", "relevance", "metadata", "via")
    _optional = ("row", "explanation", "group")
    _shown = ("relevance", "kind", "id")

    def __init__(
        self,
        hits: Iterable[Hit] = (),
        *,
        via: str,
        version: str | None,
        reranked: bool = False,
        rerank_error: str | None = None,
    ) -> None:
        super().__init__(hits)
        self.via = via
        self.version = version
        self.reranked = reranked
        """whether a reranker ordered the hits"""
        self.rerank_error = rerank_error
        """why it did not, although it was asked to"""

    def _summary(self) -> str:
        return f"{super()._summary()} by {'reranked ' if self.reranked else ''}{self.via} search"

    def replaced(self, hits: Iterable[Hit]) -> Hits:
        """Other hits, found in the same way."""
        return Hits(
            hits, via=self.via, version=self.version, reranked=self.reranked,
            rerank_error=self.rerank_error,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """The model that made a version's vectors."""

    name: str
    provider: str
    model: str
    dimensions: int

    def makes_as(self, other: ModelSpec) -> bool:
        """Whether their vectors are comparable, whatever the versions are called."""
        return (self.provider, self.model, self.dimensions) == (
            other.provider, other.model, other.dimensions,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Version:
    """One kind's vectors made by one model."""

    name: str
    kind: str
    provider: str
    model: str
    dimensions: int
    state: str
    items: int
    last_sync_at: datetime | None
    chunker: str = ""
    """how its texts are chunked"""
    template: str = ""
    """a fingerprint of how its kind's records become text"""
    table: str = ""
    """the table or collection of the index that has its vectors; empty until there is a model"""
    created_at: datetime | None = None
