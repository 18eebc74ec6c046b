"""Which index holds a store's vectors: noted in the store, and checked whenever it is opened.

The ledger lists the chunks of one particular index. With another index a search would find nothing,
without an error. An index is identified by its contents, not by its name: an index that holds the
store's vectors is the same one, even if it was moved or renamed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from evervec.errors import IndexMismatch, IndexUnavailable
from evervec.indexes.base import Index
from evervec.indexes.leftovers import remove_leftovers, used
from evervec.stores.base import Store
from evervec.stores.notes import INDEX, Location
from evervec.stores.slices import expected_slices
from evervec.stores.values import Collection, Expected

log = logging.getLogger("evervec")

OWN = "own"
"""the URL of the index in the store's own database"""
_SLICE = 1000
_SAMPLE = 100


def check_generation(store: Store, index: Index) -> None:
    """Raise `IndexMismatch` when the store has another index than when this process opened it."""
    noted = INDEX.get(store.shared) or Location(OWN)
    if noted.generation != index.generation:
        raise IndexMismatch(
            f"another process moved the vectors of {store.url} to {_shown(noted.url)}: open the "
            "store again"
        )


def open_located(
    store: Store,
    open: Callable[[str | None], Index],
    given: str | None,
    *,
    reindex: bool,
    is_there: Callable[[str], bool],
    priority: int,
) -> Index:
    """The given index, or the noted one. Raises `IndexMismatch` when it does not hold the store's
    vectors, unless `reindex` has them made again there. A store that never had vectors accepts any
    index."""
    while True:
        noted, revision = INDEX.read(store.shared)
        wanted = given or (noted.url if noted else None)
        lost = given is None and noted is not None and not is_there(noted.url)
        index = open(None if wanted == OWN else wanted)
        try:
            url = OWN if index.shares_store else index.url
            now = noted or Location(url)
            if now.url != url or lost or url.endswith(":memory:"):
                now = _relocated(store, index, now, url, reindex=reindex)
            if now == noted or INDEX.swap(store.shared, now, revision):
                if now.rebuild:
                    _rebuild(store, index, priority)
                index.generation = now.generation
                return index
        except BaseException:
            index.close()
            raise
        index.close()  # another process opened it at the same moment: try again


def _relocated(store: Store, index: Index, noted: Location, url: str, *, reindex: bool) -> Location:
    try:
        holds = not noted.rebuild and _holds(store, index)
    except IndexUnavailable as error:
        raise IndexMismatch(
            f"the vectors of {store.url} are in {_shown(noted.url)}; cannot check whether "
            f"{_shown(url)} holds them too: {error}"
        ) from error
    if holds:
        if noted.url != url:
            log.warning(
                "the vectors of %s were in %s and are now in %s: check with `evervec verify`",
                store.url, _shown(noted.url), _shown(url),
            )  # fmt: skip
        return replace(noted, url=url)
    if noted.url == url and url.endswith(":memory:"):
        if holds is False:
            log.warning(
                "%s holds no vectors of %s, as after each start: `evervec verify --repair` makes "
                "them again", url, store.url,
            )  # fmt: skip
        return noted
    if reindex or (holds is None and not noted.generation):
        return Location(url, noted.generation + 1, rebuild=True)
    raise IndexMismatch(
        f"the vectors of {store.url} are in {_shown(noted.url)}, and {_shown(url)} does not hold "
        "them: open it with the former, or make all vectors again in the latter with "
        f"`evervec reindex {url}` or evervec.open(..., index={url!r}, reindex=True)"
    )


def _shown(url: str) -> str:
    return "its own database" if url == OWN else url


def _holds(store: Store, index: Index) -> bool | None:
    """Whether an index holds what the ledger says, by a sample of each collection. More than half
    is enough, because some points may be missing in any index. An abandoned index has points of
    older changes. None: the ledger is empty."""
    looked_at = there = 0
    for collection in used(store):
        sample = _sample(store, collection)
        if not sample:
            continue
        span = (sample[0].record - 1, sample[-1].record)
        points = index.held(collection.version, None, *span)
        held = {(point.record, point.hash, point.seq) for point in points}
        looked_at += len(sample)
        there += sum(all((r.record, hash, r.seq) in held for hash in r.hashes) for r in sample)
    return there * 2 > looked_at if looked_at else None


def _sample(store: Store, collection: Collection) -> list[Expected]:
    for found in expected_slices(store, collection.version, _SAMPLE):
        if known := [record for record in found if record.live and record.hashes]:
            return known
    return []


def _rebuild(store: Store, index: Index, priority: int) -> None:
    """Clear the ledger entries of the previous index, and enqueue those records behind live work.
    Remove what the new one has from an earlier time. If it is interrupted, the next process that
    opens the store starts again; two at once do no harm."""
    store.versions.await_finishes()  # later ones see that the index is another one
    count = 0
    for collection in used(store):
        for found in expected_slices(store, collection.version, _SLICE):
            if known := [record.record for record in found if record.hashes]:
                count += store.changes.reopen(
                    collection.version, known, forget=True, priority=priority
                )
    noted, revision = INDEX.read(store.shared)
    if noted and noted.generation > 1:  # the store may have had this index before
        remove_leftovers(store, index)
    if noted:
        INDEX.swap(store.shared, replace(noted, rebuild=False), revision)
    log.info("reindex: enqueued %d records", count, extra={"count": count})
