"""Points that an index kept while the store had its vectors elsewhere."""

from __future__ import annotations

from evervec.indexes.base import Index
from evervec.stores.base import Store
from evervec.stores.slices import expected_slices
from evervec.stores.values import Collection

_SLICE = 1000


def used(store: Store) -> list[Collection]:
    """The versions in use."""
    return [c for c in store.versions.collections() if c.state != "retired"]


def remove_leftovers(store: Store, index: Index) -> None:
    """Remove the points of records that were deleted while the store had another index. Those of
    records that changed are replaced by their jobs; what workers write meanwhile stays."""
    for collection in used(store):
        version, after = collection.version, 0
        for found in expected_slices(store, version, _SLICE):
            upto = found[-1].record
            _remove_gone(store, index, version, after, upto)
            after = upto
        _remove_gone(store, index, version, after, None)


def _remove_gone(store: Store, index: Index, version: int, after: int, upto: int | None) -> None:
    """The store is read after the index, so it knows of everything that a worker has written."""
    if not (held := index.held(version, None, after, upto)):
        return
    kept = set[int]()
    for found in expected_slices(store, version, _SLICE, after):
        kept.update(record.record for record in found if record.live or record.busy)
        if upto is not None and found[-1].record >= upto:
            break
    index.remove(version, [point for point in held if point.record not in kept])
