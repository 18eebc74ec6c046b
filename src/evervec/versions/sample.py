"""A random sample of the live records of a version."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, TypeVar

from evervec.stores.base import Store
from evervec.stores.slices import expected_slices
from evervec.stores.values import Collection, Expected

T = TypeVar("T")
_SLICE = 2000
_SAMPLE = 64


def live_records(
    store: Store, collections: Sequence[Collection], tenant: str | None = None
) -> Iterator[list[Expected]]:
    """The live records of collections, slice by slice; `tenant`: only this tenant's."""
    for collection in collections:
        for found in expected_slices(store, collection.version, _SLICE, tenant=tenant):
            yield [e for e in found if e.live]


class Sample(Generic[T]):
    """A uniform random sample (reservoir sampling)."""

    def __init__(self) -> None:
        self.seen = 0
        self.drawn: list[T] = []
        self._random = random.Random(0)

    def look_at(self, items: Iterable[T]) -> None:
        """Consider these too."""
        for item in items:
            self.seen += 1
            place = self._random.randrange(self.seen)
            if len(self.drawn) < _SAMPLE:
                self.drawn.append(item)
            elif place < _SAMPLE:
                self.drawn[place] = item
