"""Estimates the cost and duration of a migration from a sample of records."""

from __future__ import annotations

import time
from collections.abc import Mapping

from evervec.chunking import chunk, parse_chunker
from evervec.embedders.base import count_tokens, embed, is_remote
from evervec.embedding.registry import Model
from evervec.model.reports import Estimate
from evervec.records.kinds import Kind
from evervec.stores.base import Store
from evervec.stores.values import Found
from evervec.versions.sample import Sample, live_records


def estimate(
    store: Store,
    model: Model,
    kinds: Mapping[str, Kind],
    concurrency: int,
    kind: str | None,
    tenant: str | None,
) -> Estimate:
    """The cost of embedding all records with a model, or only those of a kind or tenant. A sample
    is chunked and counted, and part of it is embedded to measure the speed."""
    size = 0
    collections = [
        c for c in store.versions.collections() if c.state == "serving" and kind in (None, c.kind)
    ]
    sample = Sample[int]()
    for slice_ in live_records(store, collections, tenant):
        size += store.records.sizes([e.record for e in slice_])
        sample.look_at(e.record for e in slice_)
    texts = [
        text
        for found in store.records.found(sample.drawn).values()
        for text in _pieces(model, kinds.get(found.kind), found)
    ]
    sampled = store.records.sizes(sample.drawn)
    if not texts or not sampled:
        return Estimate(sample.seen, 0, 0, 0.0, 0.0)
    share = size / sampled
    tokens = sum(count_tokens(model.provider.embedder, text) for text in texts) * share
    call = texts[: model.provider.embedder.max_batch]
    started = time.perf_counter()
    embed(model.provider.embedder, call)
    pace = (time.perf_counter() - started) / len(call)
    at_once = concurrency if is_remote(model.provider.embedder) else 1
    chunks = round(len(texts) * share)
    money = model.provider.spending.money(tokens)
    return Estimate(sample.seen, chunks, round(tokens), money, chunks * pace / at_once)


def _pieces(model: Model, kind: Kind | None, found: Found) -> list[str]:
    chunker = (kind.chunker if kind else None) or parse_chunker("", model.chunker)
    assert chunker is not None
    return chunk(chunker, found.title, found.text, model.window)[1]
