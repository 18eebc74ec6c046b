"""Estimates the cost of embedding records with a model, from a sample."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from evervec.chunking import chunk, parse_chunker
from evervec.embedders.base import count_tokens, embed, is_remote
from evervec.embedding.registry import Model
from evervec.model.reports import Estimate
from evervec.records.kinds import Kind
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Draft, Found
from evervec.tables.base import UNFIT, Attachment, Row
from evervec.tables.source import Source
from evervec.versions.sample import Sample, live_records

_ROWS = 2000


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


def estimate_rows(
    source: Source, attachment: Attachment, model: Model | None, settings: Settings
) -> Estimate:
    """The cost of embedding the rows of a table, from a sample of the first ones; None: without a
    model. Nothing is embedded: a dry run must not cost anything."""
    rows = source.count(attachment) or 0
    sample, size, read = Sample[Draft](), 0, source.page(attachment, (), _ROWS)
    for draft in _drafts(attachment, read, settings):
        size += len(draft.text)
        sample.look_at([draft])
    if not sample.drawn:
        return Estimate(0, 0, 0, 0.0, None)
    share = max(rows, len(read)) / len(read)
    records = round(sample.seen * share)
    if model is None:
        return Estimate(records, 0, 0, 0.0, None)
    texts = [text for draft in sample.drawn for text in _pieces(model, None, draft)]
    grown = share * size / sum(len(draft.text) for draft in sample.drawn)
    tokens = sum(count_tokens(model.provider.embedder, text) for text in texts) * grown
    money = model.provider.spending.money(tokens)
    return Estimate(records, round(len(texts) * grown), round(tokens), money, None)


def _drafts(attachment: Attachment, rows: Sequence[Row], settings: Settings) -> Iterator[Draft]:
    for row in rows:
        with suppress(*UNFIT):
            if draft := attachment.draft(row, settings):
                yield draft


def _pieces(model: Model, kind: Kind | None, found: Found | Draft) -> list[str]:
    chunker = (kind.chunker if kind else None) or parse_chunker("", model.chunker)
    assert chunker is not None
    return chunk(chunker, found.title, found.text, model.window)[1]
