"""Estimates the cost and duration of a migration from a sample of records."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from evervec.chunking import chunk, parse_chunker
from evervec.embedders.base import count_tokens, embed
from evervec.embedding.registry import Model
from evervec.model.reports import Estimate
from evervec.records.kinds import Kind
from evervec.stores.base import Store
from evervec.stores.values import Collection, Expected, Found

T = TypeVar("T")


_SLICE = 2000


_SAMPLE = 64


def estimate(
    store: Store,
    model: Model,
    collections: Sequence[Collection],
    kinds: Mapping[str, Kind],
    concurrency: int,
    tenant: str | None,
) -> Estimate:
    """The cost of embedding all records of some collections with a model, or only a tenant's. A
    sample is chunked and counted, and part of it is embedded to measure the speed."""
    size = 0
    sample = _Sample[int]()
    for slice_ in _live(store, collections, tenant):
        size += store.sizes([e.record for e in slice_])
        sample.look_at(e.record for e in slice_)
    texts = [
        text
        for found in store.found(sample.drawn).values()
        for text in _pieces(model, kinds.get(found.kind), found)
    ]
    sampled = store.sizes(sample.drawn)
    if not texts or not sampled:
        return Estimate(sample.seen, 0, 0, 0.0, 0.0)
    share = size / sampled
    tokens = sum(count_tokens(model.provider.embedder, text) for text in texts) * share
    call = texts[: model.provider.embedder.max_batch]
    started = time.perf_counter()
    embed(model.provider.embedder, call)
    pace = (time.perf_counter() - started) / len(call)
    at_once = concurrency if hasattr(model.provider.embedder, "ask") else 1
    chunks = round(len(texts) * share)
    money = model.provider.spending.money(tokens)
    return Estimate(sample.seen, chunks, round(tokens), money, chunks * pace / at_once)


def _pieces(model: Model, kind: Kind | None, found: Found) -> list[str]:
    chunker = (kind.chunker if kind else None) or parse_chunker("", model.chunker)
    assert chunker is not None
    return chunk(chunker, found.title, found.text, model.window)[1]


def _live(
    store: Store, collections: Sequence[Collection], tenant: str | None = None
) -> Iterator[list[Expected]]:
    for collection in collections:
        after = 0
        while found := store.expected(tenant, collection.version, after, _SLICE):
            after = found[-1].record
            yield [e for e in found if e.live]


class _Sample(Generic[T]):
    """A uniform random sample (reservoir sampling)."""

    def __init__(self) -> None:
        self.seen = 0
        self.drawn: list[T] = []
        self._random = random.Random(0)

    def look_at(self, items: Iterable[T]) -> None:
        for item in items:
            self.seen += 1
            place = self._random.randrange(self.seen)
            if len(self.drawn) < _SAMPLE:
                self.drawn.append(item)
            elif place < _SAMPLE:
                self.drawn[place] = item
