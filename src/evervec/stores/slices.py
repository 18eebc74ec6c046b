"""Reads all records of a collection without holding them all in memory."""

from __future__ import annotations

from collections.abc import Iterator

from evervec.stores.base import Store
from evervec.stores.values import Expected


def expected_slices(
    store: Store, version: int, limit: int, after: int = 0
) -> Iterator[list[Expected]]:
    """The records of a collection with ledger and job, by number: slices of up to `limit`, each
    read when the previous one is done."""
    while found := store.records.expected(None, version, after, limit):
        after = found[-1].record
        yield found
