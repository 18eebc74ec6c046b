"""Compares the search results of two versions, on a sample of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from evervec.embedding.registry import EmbedderRegistry
from evervec.indexes.base import Index, Query
from evervec.model.findings import VerifyReport
from evervec.model.reports import Comparison
from evervec.stores.base import Store
from evervec.stores.values import Collection, Expected
from evervec.versions.sample import Sample, live_records

_WORDS = 12


def compare(
    store: Store,
    index: Index,
    models: EmbedderRegistry,
    pairs: Sequence[tuple[Collection, Collection]],
    queries: Iterable[str] | None,
    k: int,
    report: VerifyReport,
) -> Comparison:
    """Search two versions with the same queries, for each tenant."""
    asked = shared = 0.0
    given = None if queries is None else list(queries)
    for new, old in pairs:
        first, second = models.of(new.spec), models.of(old.spec)
        if first is None or second is None:
            continue
        for tenant, query in _questions(store, new, given):
            found = [
                set(
                    index.search(
                        Query(c.version, tenant, m.provider.embed_query(query, tenant), k)
                    ).records
                )
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
    """Queries, each with the tenant whose records it searches: the tenants of sampled records."""
    sample = Sample[Expected]()
    for slice_ in live_records(store, [collection]):
        sample.look_at(slice_)
    if given is not None:
        for tenant in sorted({e.tenant for e in sample.drawn}):
            yield from ((tenant, query) for query in given)
        return
    found = store.records.found([e.record for e in sample.drawn])
    for e in sample.drawn:
        if record := found.get(e.record):
            words = (record.title or record.text).split()[:_WORDS]
            if words:
                yield e.tenant, " ".join(words)
