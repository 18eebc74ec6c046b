"""Reads all records of a collection or kind without holding them all in memory."""

from __future__ import annotations

from collections.abc import Iterator

from evervec.stores.base import Store
from evervec.stores.values import Expected


def expected_slices(
    store: Store, version: int, limit: int, after: int = 0, tenant: str | None = None
) -> Iterator[list[Expected]]:
    """The records of a collection with ledger and job, by number: slices of up to `limit`, each
    read when the previous one is done."""
    while found := store.records.expected(tenant, version, after, limit):
        after = found[-1].record
        yield found


def records_of(store: Store, kind: str, limit: int, after: int = 0) -> Iterator[list[Expected]]:
    """The records of a kind, as its serving version has them."""
    for collection in store.versions.collections():
        if collection.kind == kind and collection.state == "serving":
            yield from expected_slices(store, collection.version, limit, after)
