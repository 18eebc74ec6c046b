"""Reads the vectors of records back from the index.

The ledger says which chunks of a record the index holds, and the index has their vectors. A worker
may replace points between the two reads: a record of which a vector is missing is read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evervec.errors import InvalidArgument
from evervec.indexes.base import Index, StoredVector
from evervec.model.bounds import shown
from evervec.model.deadlines import check
from evervec.model.records import ChunkVector
from evervec.records.drafts import check_name
from evervec.stores.base import Store
from evervec.stores.values import LedgerEntry

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_AT_ONCE = 256
_COUNTED = 16
"""records whose chunks are counted at once"""
_TRIES = 3


class VectorReader:
    """The vectors of one tenant's records in the serving version."""

    def __init__(self, store: Store, index: Index, tenant: str) -> None:
        self._store = store
        self._index = index
        self._tenant = tenant

    def read(self, kind: str, ids: Sequence[str]) -> dict[str, list[ChunkVector]]:
        """By id, in the order of `ids`; records without vectors are left out."""
        found: dict[str, list[ChunkVector]] = {}
        wanted = list(dict.fromkeys(ids))
        for start in range(0, len(wanted), _AT_ONCE):
            check()
            found |= self._portion(kind, wanted[start : start + _AT_ONCE])
        return {id: found[id] for id in wanted if id in found}

    def read_within(
        self, kind: str, ids: Sequence[str], usual: int, most: int
    ) -> tuple[dict[str, list[ChunkVector]], list[str]]:
        """The vectors of the first of these records, of about `usual` numbers together, and the ids
        of the others. Raises `InvalidArgument` if the first has more than `most` by itself."""
        wanted = list(dict.fromkeys(ids))
        serving = self._serving(kind)
        if serving is None:
            return {}, []
        version, dimensions = serving
        size, chosen = 0, list[str]()
        for start in range(0, len(wanted), _COUNTED):
            check()
            some = wanted[start : start + _COUNTED]
            counts = self._store.records.chunk_counts(self._tenant, kind, some, version)
            for id in some:
                numbers = counts.get(id, 0) * dimensions
                if numbers > most and not chosen:
                    raise InvalidArgument(
                        f"{kind} {shown(id)} has vectors of {numbers:,} numbers, and a response at "
                        f"most {most:,} (server_page_mb): leave it out"
                    )
                if chosen and size + numbers > usual:
                    return self.read(kind, chosen), wanted[len(chosen) :]
                chosen.append(id)
                size += numbers
        return self.read(kind, chosen), []

    def mean(self, kind: str, id: str) -> NDArray[np.float32]:
        """The mean of a record's vectors."""
        check_name("kind", kind)
        if not (chunks := self.read(kind, [id]).get(id)):
            raise InvalidArgument(f"{kind} {shown(id)} does not exist or is not embedded yet")
        import numpy as np

        mean: NDArray[np.float32] = np.mean([chunk.vector for chunk in chunks], axis=0)
        return mean

    def _portion(self, kind: str, ids: Sequence[str]) -> dict[str, list[ChunkVector]]:
        found: dict[str, list[ChunkVector]] = {}
        for _ in range(_TRIES):
            serving = self._serving(kind)
            if serving is None or not ids:
                break
            version, _ = serving
            entries = self._store.records.entries(self._tenant, kind, ids, version)
            stored = self._index.vectors(version, [entry.record for entry in entries])
            for entry in entries:
                if made := _joined(entry, stored.get(entry.record, ())):
                    found[entry.id] = made
            # the others were replaced, deleted or moved to another version, or are damaged
            ids = [entry.id for entry in entries if entry.chunks and entry.id not in found]
        return found

    def _serving(self, kind: str) -> tuple[int, int] | None:
        """The version that serves searches, and the length of its vectors."""
        for collection in self._store.versions.collections():
            if collection.kind == kind and collection.state == "serving" and collection.spec:
                return collection.version, collection.spec.dimensions
        return None


def _joined(entry: LedgerEntry, stored: Sequence[StoredVector]) -> list[ChunkVector]:
    """The chunks of a record with their vectors; empty if one is missing."""
    by_hash: Mapping[bytes, StoredVector] = {point.hash: point for point in stored}
    if not all(chunk.hash in by_hash for chunk in entry.chunks):
        return []
    return [
        ChunkVector(
            position, start if entry.current else None, end if entry.current else None,
            by_hash[hash].vector,
        )
        for position, (hash, start, end) in enumerate(entry.chunks)
    ]  # fmt: skip
