"""The contract of every vector index.

An index holds points in collections, one for each kind and embedding version, and never goes back:
a change with a lower seq than the record has in the index is skipped, and so is a change for a
record that was removed with a higher seq. The tenant is part of every search. `tests/conformance`
checks the same.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from evervec.model.filters import Conditions
from evervec.model.records import Change, ModelSpec
from evervec.model.reports import IndexBuild
from evervec.stores.values import Applied, Collection

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_patience: ContextVar[float | None] = ContextVar("evervec_patience", default=None)


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """Inside the block, calls of this thread to an index wait at most so long for other writers,
    then raise `IndexBusy`. Outside they wait as long as a writer may take."""
    before = _patience.set(seconds)
    try:
        yield
    finally:
        _patience.reset(before)


def patience_left(otherwise: float) -> float:
    """For indexes: seconds that the caller is willing to wait."""
    given = _patience.get()
    return otherwise if given is None else given


def by_version(changes: Iterable[Change]) -> list[tuple[int, list[Change]]]:
    """Changes by their version, in order."""
    found: dict[int, list[Change]] = defaultdict(list)
    for change in changes:
        found[change.version].append(change)
    return sorted(found.items())


class Copy(NamedTuple):
    """The copy of a record's text and metadata in a point, in indexes that keep one."""

    text: str
    metadata: Mapping[str, Any]


class Held(NamedTuple):
    """A point in an index: the index's side of `verify`."""

    record: int
    tenant: str
    hash: bytes
    seq: int
    """of the change that last wrote it"""
    key: Any = None
    """the index's own key of this point"""
    sound: bool = True
    """its vector has the right size, is finite and of length one, as far as can be checked"""
    copy: Copy | None = None


class StoredVector(NamedTuple):
    """A point's vector as it is in an index."""

    hash: bytes
    """of its chunk"""
    position: int
    """of its chunk in the record; of the first one, if chunks have the same text"""
    vector: NDArray[np.float32]


class Stray(NamedTuple):
    """Points of a version that is no longer in use."""

    version: int | None
    """None if the number is no longer known"""
    tenant: str
    records: int
    place: Any = None
    """where the index keeps them"""


class Match(NamedTuple):
    """A record found by an index, with its best chunk."""

    record: int
    hash: bytes
    similarity: float


@dataclass(frozen=True, slots=True)
class Query:
    """A search in one collection."""

    version: int
    tenant: str
    vector: NDArray[np.float32]
    limit: int
    """of records"""
    conditions: Conditions = ()
    """on their metadata"""
    mark: int | None = None
    """the store's mark as just read: an index in the store's own database may use it to check its
    cache"""

    @property
    def chunks(self) -> int:
        """How many to look for first: a record may be found by several of its chunks."""
        return 2 * self.limit + 8


@dataclass(slots=True)
class Matches:
    """Search results of an index, best first, each record once. Stored in columns, because a search
    reads three times as many as it returns, and the chunk of very few."""

    records: Sequence[int] = ()
    scores: Sequence[float] = ()
    hashes: Sequence[bytes] = ()
    """of their chunks"""

    @classmethod
    def of(cls, matches: Iterable[Match], limit: int) -> Matches:
        """The `limit` best records, from matches in any order."""
        return cls.best_first(sorted(matches, key=lambda m: -m.similarity), limit)

    @classmethod
    def best_first(cls, matches: Iterable[Match], limit: int) -> Matches:
        """The first `limit` records, from matches in order; the rest is not read."""
        similarity: dict[int, float] = {}
        hashes: list[bytes] = []
        for record, hash, score in matches:
            if len(hashes) == limit:
                break
            if record not in similarity:
                similarity[record] = score
                hashes.append(hash)
        return cls(list(similarity), list(similarity.values()), hashes)

    @property
    def similarity(self) -> dict[int, float]:
        """By record."""
        return dict(zip(self.records, self.scores, strict=True))

    def hash_of(self, record: int) -> bytes | None:
        """Of the record's chunk; None if the index did not find it."""
        return self.hashes[self.records.index(record)] if record in self.records else None

    def __iter__(self) -> Iterator[Match]:
        for record, hash, score in zip(self.records, self.hashes, self.scores, strict=True):
            yield Match(record, hash, score)

    def __len__(self) -> int:
        return len(self.records)


def similarities_of(
    stored: Mapping[int, Sequence[StoredVector]], vector: NDArray[np.float32]
) -> dict[int, float]:
    """The cosine of the best chunk of each record."""
    return {
        record: max(float(chunk.vector @ vector) for chunk in chunks)
        for record, chunks in stored.items()
    }


class Index(Protocol):
    """A vector index. Methods raise `IndexUnavailable` when it cannot be reached, and `IndexBusy`
    when others write to it for longer than the caller's `patience`. An index that inherits from it
    defines `refuses`, `is_loaded`, `revive`, `maintain`, `builds` and `close` only if it has something to
    do."""

    url: str
    shares_store: bool
    """its points are in the store's own database, written with the job's finish"""
    generation: int = 0
    """which of the store's indexes it is, see `location`"""

    def table(self, collection: Collection) -> str:
        """The name of the table or collection with the points of a collection that has a model."""
        ...

    def apply(self, changes: Sequence[Change], conn: Any = None) -> Applied | None:
        """Bring records' points to the state in the changes; atomically if `conn` is given (the
        store's open transaction, in which the jobs' tokens were checked). The answer lists what was
        not done (None: everything was done): a change with a lower seq than the record has in the
        index is skipped, and a kept chunk that is not in the index stays missing. Only the same
        write may come twice with one seq."""
        ...

    def refuses(self, kind: str, spec: ModelSpec) -> str | None:
        """Why it cannot hold a kind's vectors of a model, and what to do; None: it can. `apply`
        raises `WrongCollection` for versions that it would refuse."""
        return None

    def search(self, query: Query) -> Matches:
        """The nearest records of one collection by cosine, each once, best first."""
        ...

    def is_loaded(self, version: int, tenant: str) -> bool:
        """Whether a search need not read all of a tenant's vectors, or what stands for them, into
        memory first. It may have been evicted since the last search."""
        return True

    def similarities(self, query: Query, records: Sequence[int]) -> dict[int, float]:
        """The cosine of the best chunk of each of these records of the query's tenant, as `search`
        gives it, however many are nearer; a record without points is left out."""
        return similarities_of(self.vectors(query.version, records), query.vector)

    def vectors(self, version: int, records: Sequence[int]) -> dict[int, list[StoredVector]]:
        """The vectors of these records in one collection, by position; a record without points is
        left out. A vector is what was written (of length one) within the precision of the index:
        exact where the index stores 32-bit floats, to the last digits where it normalises again
        (Qdrant), to three digits with `pgvector_half`. One read for all records, for some hundred
        at once."""
        ...

    def held(self, version: int, tenant: str | None, after: int, upto: int | None) -> list[Held]:
        """All points of records numbered above `after`, up to and including `upto`."""
        ...

    def remove(self, version: int, points: Sequence[Held]) -> int:
        """Remove surplus points; points that were written since stay."""
        ...

    def drop(self, version: int) -> None:
        """Remove all of a collection for good: its version is retired."""

    def revive(self, version: int, records: Sequence[int]) -> None:
        """Remove the tombstones of records, so that the next write is accepted: a store that was
        restored from a backup may be behind its index, unless that is in its own database."""
        return

    def strays(self, known: Set[int], tenant: str | None) -> list[Stray]:
        """The points of versions other than the `known` ones."""
        ...

    def drop_strays(self, strays: Sequence[Stray]) -> None:
        """Remove exactly those."""

    def maintain(self, before: float) -> None:
        """Periodic maintenance of the index. Tombstones from before that time may be removed."""
        return

    def builds(self) -> list[IndexBuild]:
        """The builds of its own search structures that are under way, of any process."""
        return []

    def close(self) -> None:
        """Release what it holds open."""
        return
