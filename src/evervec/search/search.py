"""Search: full text and vectors, fused, rescored by weight and age.

More candidates than requested are fetched, so that rescoring has a choice. Hits are joined with the
live records, so deleted records disappear at once. If vectors cannot be searched (no embedder, or
provider or index unavailable), full text answers and `via` says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any

from evervec.chunking import SizeChunker, parse_chunker
from evervec.embedders.base import describe
from evervec.embedding.prepared import Vectors
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import DeadlineExceeded, InvalidArgument
from evervec.indexes.base import Index, Matches, Query
from evervec.model.basics import quick_maker
from evervec.model.bounds import check_bound, shown
from evervec.model.deadlines import check
from evervec.model.filters import Conditions, read_filter
from evervec.model.records import Hit, Hits
from evervec.records.drafts import check_given, check_text
from evervec.records.kinds import Kind
from evervec.search.cache import Scope, SearchCache, Serving
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.ledger import find_chunk
from evervec.stores.sql.words import terms
from evervec.stores.values import Collection, Found
from evervec.telemetry.counters import SEARCHES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("evervec")

MODES = ("hybrid", "semantic", "text")
_LEDGERS = 64
"""number of records whose chunks are looked up at once"""
_QUICK = 1.0
"""seconds below which no searched version can have been dropped: a retired version is kept for
longer (see `versions.lifecycle`)"""
_make_hit = quick_maker(Hit)

Ranked = tuple[float, int, float | None]
"""negated relevance, record, similarity"""


@dataclass(eq=False, repr=False)
class Search:
    """Searches of one tenant."""

    _store: Store
    _index: Index
    _models: EmbedderRegistry
    _kinds: Mapping[str, Kind]
    _settings: Settings
    _tenant: str
    _recall: SearchCache | None = field(default=None, init=False)

    def search(
        self, query: str, k: int, kind: str | None, mode: str, filter: Mapping[str, Any] | None
    ) -> Hits:
        """The best `k` records; the time is counted by how they were found."""
        _check(query, k, mode, self._settings)
        check_given(kind=kind)
        conditions = read_filter(filter, self._settings)
        began, limit = time.perf_counter(), k * self._settings.overfetch
        recall, scope, matches = self._nearest(query, limit, kind, mode, conditions)
        via = "text" if matches is None else mode
        words: dict[int, float] = {}
        if via != "semantic":
            words = dict(
                self._store.records.search_text(self._tenant, kind, query, limit, conditions)
            )
        found = _candidates(via, matches or Matches(), words)
        ranked = self._rank(recall, *found)[:k]
        hits = self._hits(query, recall, ranked, matches or Matches(), words, scope)
        SEARCHES.observe(time.perf_counter() - began, via)
        return Hits(hits, via=via, version=None if matches is None else scope.names)

    def prepare(self, query: Any, kind: str | None, mode: str) -> Vectors:
        """The vectors that `search` will need of a query, made in advance; see
        `embedding.prepared`."""
        _check(query, 1, mode, self._settings)
        check_given(kind=kind)
        made: dict[tuple[object, str], NDArray[np.float32] | Exception] = {}
        models = () if mode == "text" else self._recalled().scope(kind).models
        for provider in (model.provider for model in models):
            try:
                made[provider, query] = provider.embed_query(query)
            except DeadlineExceeded:
                raise
            except Exception as error:  # noqa: BLE001 - raised where the vector is used
                made[provider, query] = error
        return made

    def _nearest(
        self, query: str, limit: int, kind: str | None, mode: str, conditions: Conditions
    ) -> tuple[SearchCache, Scope, Matches | None]:
        """The nearest records with what they were searched by. A slow provider may answer after the
        version it was asked for was retired and dropped: then the search is repeated."""
        while True:
            began = self._store.now()
            recall = self._recalled()
            scope = recall.scope(kind)
            if mode == "text" or not scope.serving:
                return recall, scope, None
            matches = self._by_vector(query, scope, limit, conditions, recall)
            if self._store.now() - began < _QUICK or self._are_all_kept(scope):
                return recall, scope, matches

    def _are_all_kept(self, scope: Scope) -> bool:
        mine = self._store.versions.collections_of(self._tenant)
        kept = {c.version for c in mine if c.state != "retired"}
        return all(s.version in kept for s in scope.serving)

    def _recalled(self) -> SearchCache:
        """The cache of versions and records; a new one after any write."""
        mark, recall = self._store.mark(), self._recall
        if recall is None or recall.mark != mark or recall.is_full:
            serving = self._serving()
            recall = self._recall = SearchCache(
                self._store, self._tenant, self._kinds, mark, serving
            )
        return recall

    def _serving(self) -> list[Serving]:
        """The serving version of each of the tenant's kinds. If this process lacks its model to
        embed a query, the standby version, which also receives every change."""
        chosen: dict[str, Serving] = {}
        mine = self._store.versions.collections_of(self._tenant)
        for state in ("serving", "standby"):
            for c in mine:
                if c.state == state and c.kind not in chosen and (model := self._models.of(c.spec)):
                    assert c.spec is not None
                    chosen[c.kind] = Serving(
                        c.kind, c.version, c.spec.name, model, self._whole(c, model)
                    )
        return list(chosen.values())

    def _by_vector(
        self,
        query: str,
        scope: Scope,
        limit: int,
        conditions: Conditions,
        recall: SearchCache,
    ) -> Matches | None:
        """The nearest records of all kinds; None when the model or the index is unavailable."""
        try:
            vectors = {model: model.provider.embed_query(query) for model in scope.models}
            found = [
                self._index.search(
                    Query(s.version, self._tenant, vectors[s.model], limit, conditions, recall.mark)
                )
                for s in scope.serving
            ]
        except DeadlineExceeded:
            raise
        except Exception as error:  # noqa: BLE001 - full text can answer instead
            log.warning("search uses text only: %s", describe(error))
            return None
        all = found[0] if len(found) == 1 else Matches.of(chain.from_iterable(found), limit)
        if conditions and not self._index.shares_store:
            return self._still_fitting(recall, all, conditions)
        return all

    def _still_fitting(
        self, recall: SearchCache, found: Matches, conditions: Conditions
    ) -> Matches:
        """Drop matches that no longer fit the filter: an index outside the store has the metadata
        of its last write."""
        read = zip(found, recall.read(found.records), strict=True)
        good = (match for match, known in read if known is not None and known.fits(conditions))
        return Matches.best_first(good, len(found))

    def _rank(
        self,
        recall: SearchCache,
        records: Sequence[int],
        scores: Sequence[float],
        similarity: Sequence[float | None],
    ) -> list[Ranked]:
        """The live records, best first."""
        now = self._store.now()
        ranked = []
        alive = recall.factors(records)
        for record, score, near, factors in zip(records, scores, similarity, alive, strict=True):
            if factors is not None:  # otherwise it was deleted after its vector was written
                strength, decay, updated_at = factors
                age = now - updated_at if now > updated_at else 0.0
                ranked.append((-score * strength / (1.0 + age / decay), record, near))
        ranked.sort()
        return ranked

    def _whole(self, collection: Collection, model: Model) -> int:
        kind = self._kinds.get(collection.kind)
        chunker = kind.chunker if kind else None
        chunker = chunker or parse_chunker(collection.chunker, model.chunker)
        return getattr(chunker, "whole", 0)

    def forget(self) -> None:
        """Clear the cache: a kind was registered, which may change relevance."""
        self._recall = None

    def _hits(
        self,
        query: str,
        recall: SearchCache,
        ranked: list[Ranked],
        matches: Matches,
        words: Mapping[int, float],
        scope: Scope,
    ) -> list[Hit]:
        """The hits for the best records, each with its best chunk."""
        records = [record for _, record, _ in ranked]
        ledgers: dict[int, bytes] = {}
        looked = 0
        hits = []
        all = zip(ranked, recall.read(records), strict=True)
        for place, ((rank, record, similarity), read) in enumerate(all):
            if read is None:
                continue
            check()
            kind, id, title, text, flat, found = read
            if text is None:
                if place >= looked:
                    looked = place + _LEDGERS
                    versions = [s.version for s in scope.serving]
                    ledgers = self._store.records.ledgers(records[place:looked], versions)
                entry = ledgers.get(record) if similarity is not None else None
                span = find_chunk(entry, matches.hash_of(record)) if entry else None
                # found by words, or the text changed after its vector was made: find the best piece
                # by words
                text = found.text[slice(*span)] if span else self._best_piece(query, found)
            way = "text" if similarity is None else "hybrid" if record in words else "semantic"
            metadata = read.metadata() if flat is None else flat.copy()
            hits.append(_make_hit(kind, id, title, text, similarity, -rank, metadata, way))
        return hits

    def _best_piece(self, query: str, found: Found) -> str:
        """The piece that contains most of the query's full-text terms, which are few."""
        words = {term.lower() for term in terms(query)}
        best, most = "", -1
        for start, end in SizeChunker(4 * self._settings.chunk_tokens).split(found.text):
            check()
            piece = found.text[start:end]
            lowered = piece.lower()
            count = sum(word in lowered for word in words)
            if count > most:
                best, most = piece, count
            if most == len(words):
                break
        return best


def _candidates(
    via: str, matches: Matches, words: Mapping[int, float]
) -> tuple[Sequence[int], Sequence[float], Sequence[float | None]]:
    """Records, the scores they are ranked by, and their similarities."""
    if via == "semantic":
        return matches.records, matches.scores, matches.scores
    near = matches.similarity
    base = fuse(near, words) if via == "hybrid" else share_of_best(words)
    return list(base), list(base.values()), [near.get(record) for record in base]


def _check(query: Any, k: Any, mode: Any, settings: Settings) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidArgument(f"k must be a whole number of at least 1, not {shown(k)}")
    check_bound(settings, "most_hits", k, "k: requests {} hits")
    if mode not in MODES:
        raise InvalidArgument(f"unknown mode {shown(mode)}; choose one of {', '.join(MODES)}")
    try:
        check_text("query", query)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
    check_bound(settings, "query_chars", len(query), "query: has {} characters")


def fuse(near: Mapping[int, float], scores: Mapping[int, float]) -> dict[int, float]:
    """The average of both scores, each scaled to 0..1 between the lowest and the highest found.

    Cosine similarities of good and bad hits lie close together, text scores far apart; scaling
    keeps either side from dominating. A record that one side did not find scores 0 there.
    """
    meaning, words = _scaled(near), _scaled(scores)
    return {
        record: 0.5 * meaning.get(record, 0.0) + 0.5 * words.get(record, 0.0)
        for record in meaning.keys() | words.keys()
    }


def share_of_best(scores: Mapping[int, float]) -> dict[int, float]:
    """Text scores alone, each as a fraction of the best."""
    best = max(scores.values(), default=0.0)
    return {record: score / best if best > 0 else 1.0 for record, score in scores.items()}


def _scaled(scores: Mapping[int, float]) -> dict[int, float]:
    best = max(scores.values(), default=0.0)
    least = min(scores.values(), default=0.0)
    if best <= least:
        return dict.fromkeys(scores, 1.0)
    return {record: (score - least) / (best - least) for record, score in scores.items()}
