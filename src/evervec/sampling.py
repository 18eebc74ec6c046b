"""What a sample tells of a migration: what it will take, and how its answers differ."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from evervec.chunking import chunk, parse_chunker
from evervec.embedders.base import count_tokens, embed
from evervec.indexes.base import Index
from evervec.kinds import Kind
from evervec.models import Model, Models
from evervec.reports import Comparison, Estimate, VerifyReport
from evervec.stores.base import Store
from evervec.stores.values import Collection, Expected, Found

T = TypeVar("T")

_SLICE = 2000
_SAMPLE = 64
_WORDS = 12


def estimate(
    store: Store,
    model: Model,
    collections: Sequence[Collection],
    kinds: Mapping[str, Kind],
    concurrency: int,
    tenant: str | None,
) -> Estimate:
    """What it takes to embed all records of some collections with a model, or a tenant's: from a
    sample that is cut, counted and, for its pace, embedded."""
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


def compare(
    store: Store,
    index: Index,
    models: Models,
    pairs: Sequence[tuple[Collection, Collection]],
    queries: Iterable[str] | None,
    k: int,
    report: VerifyReport,
) -> Comparison:
    """Search two versions for the same questions; each tenant's records for its own."""
    asked = shared = 0.0
    given = None if queries is None else list(queries)
    for new, old in pairs:
        first, second = models.of(new.spec), models.of(old.spec)
        if first is None or second is None:
            continue
        for tenant, query in _questions(store, new, given):
            found = [
                set(index.search(c.version, tenant, m.provider.embed_query(query), k).records)
                for c, m in ((new, first), (old, second))
            ]
            most = max(len(found[0]), len(found[1]))
            if most:
                asked += 1
                shared += len(found[0] & found[1]) / most
    return Comparison(int(asked), shared / asked if asked else None, k, report)


def _questions(
    store: Store, collection: Collection, given: list[str] | None
) -> Iterator[tuple[str, str]]:
    """Each with the tenant whose records it is put to: those of sampled records."""
    sample = _Sample[Expected]()
    for slice_ in _live(store, [collection]):
        sample.look_at(slice_)
    if given is not None:
        for tenant in sorted({e.tenant for e in sample.drawn}):
            yield from ((tenant, query) for query in given)
        return
    found = store.found([e.record for e in sample.drawn])
    for e in sample.drawn:
        if record := found.get(e.record):
            words = (record.title or record.text).split()[:_WORDS]
            if words:
                yield e.tenant, " ".join(words)


def _live(
    store: Store, collections: Sequence[Collection], tenant: str | None = None
) -> Iterator[list[Expected]]:
    for collection in collections:
        after = 0
        while found := store.expected(tenant, collection.version, after, _SLICE):
            after = found[-1].record
            yield [e for e in found if e.live]


class _Sample(Generic[T]):
    """Some of many, of which each is as likely to be among them as any other."""

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
