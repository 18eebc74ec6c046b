"""Search: full text and vectors, combined, rescored by weight and age.

More candidates than requested are fetched, so that rescoring has a choice. Hits are joined with the
live records, so deleted records disappear at once. If vectors cannot be searched (no embedder, or
provider or index unavailable), full text answers and `via` says so.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from evervec.chunking import parse_chunker
from evervec.embedders.base import describe
from evervec.embedding.prepared import Vectors
from evervec.embedding.query_costs import QueryRefused
from evervec.embedding.registry import EmbedderRegistry, Model
from evervec.errors import DeadlineExceeded, InvalidArgument
from evervec.indexes.base import Index, Query
from evervec.indexes.location import check_generation
from evervec.model.records import Hit, Hits
from evervec.records.kinds import Kind
from evervec.search.cache import Scope, SearchCache, ServingVersion
from evervec.search.candidates import CandidateFinder, Nearest
from evervec.search.diversity import diversify
from evervec.search.hits import HitMaker
from evervec.search.ranking import Evidence, Order, Ranked, Rerank, rank
from evervec.search.request import Request
from evervec.search.reranker import NotReranked, RerankerRegistry, SharedReranker
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.stores.values import Collection, ReplicaFailed
from evervec.telemetry.counters import SEARCHES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("evervec")

_QUICK = 1.0
"""seconds below which no searched version can have been dropped: a retired version is kept for
longer (see `versions.lifecycle`)"""


_LEAST_WIDTH = 10
"""Searches for fewer hits look as deep as one for this many: a record that one side finds further
down gets no evidence from that side, so the first hit would depend on how many are asked for."""
_DEEPER = 4
_DEEPEST = 10
"""how many times `most_hits` records are looked at for groups"""

_Asked = Mapping[Model, "NDArray[np.float32]"]


class _Look(NamedTuple):
    """What a search found, and with what."""

    recall: SearchCache
    scope: Scope
    asked: _Asked | None
    """the query's vector by model; None: only words were searched"""
    evidence: Evidence


@dataclass(eq=False, repr=False)
class Search:
    """Searches of one tenant."""

    _store: Store
    _index: Index
    _models: EmbedderRegistry
    _kinds: Mapping[str, Kind]
    _settings: Settings
    _tenant: str
    _rerankers: RerankerRegistry
    _recall: SearchCache | None = field(default=None, init=False)
    _checked: SearchCache | None = field(default=None, init=False)
    """with which the index was known to be the store's"""
    _candidates: CandidateFinder = field(init=False)

    def __post_init__(self) -> None:
        self._candidates = CandidateFinder(self._store, self._index, self._tenant)

    def search(self, request: Request) -> Hits:
        """The best records; the time is counted by how they were found."""
        began, reranker = time.perf_counter(), self._rerankers.of(request.rerank)
        look, hits, error = None, None, None
        if reranker is not None:
            try:
                reranker.check()
                look = self._look(request, self._depths(request, self._reranked_count(request)))
                hits = self._reranked(request, look, reranker)
            except NotReranked as failure:
                error = str(failure)
        is_reranked = hits is not None
        if look is None or hits is None:
            look, hits = self._plain(request, look)
        via = look.evidence.via
        SEARCHES.observe(time.perf_counter() - began, via)
        version = None if look.asked is None else look.scope.names
        return Hits(hits, via=via, version=version, reranked=is_reranked, rerank_error=error)

    def _plain(self, request: Request, look: _Look | None) -> tuple[_Look, list[Hit]]:
        """The hits without a reranker; `look`: what a deeper search has found already."""
        depths = self._depths(request, request.end)
        while True:
            look = look or self._look(request, depths)
            order = self._order(request, look, depths)
            hits = self._maker(request, look).make(order, look.evidence)
            if not self._are_more(request, look, order, hits, depths):
                return look, hits
            # for groups there are no other pages, which depths in between serve
            depths = [*depths, 2 * depths[-1]] if not request.group_by else [_DEEPER * depths[-1]]
            look = None

    def _maker(self, request: Request, look: _Look) -> HitMaker:
        return HitMaker(self._store, look.recall, look.scope, request, self._settings, self._kinds)

    def _are_more(
        self,
        request: Request,
        look: _Look,
        order: Order,
        hits: Sequence[Hit],
        depths: Sequence[int],
    ) -> bool:
        """Whether a deeper search could find hits that are missing: those of other groups, if few
        have most of the best records, or those behind many that do not reach a threshold."""
        if request.group_by is not None:
            is_short = len(hits) < request.width
        else:
            is_short = request.has_threshold and len(order.ranked) < request.end
        if not is_short or depths[-1] >= _DEEPEST * self._settings.most_hits:
            return False
        rest = look.evidence.rest(depths[-1])
        return rest is not None and request.reaches(
            rest.score * look.recall.most_strength, rest.cosine
        )

    def prepare(self, request: Request) -> Vectors:
        """The vectors that `search` will need, made in advance; see `embedding.prepared`."""
        made: dict[tuple[object, str], NDArray[np.float32] | Exception] = {}
        if request.mode == "text" or request.query is None:
            return made
        for model in self._recalled(request.version).scope(request.kinds).models:
            provider = model.provider
            try:
                made[provider, request.query] = provider.embed_query(request.query, self._tenant)
            except DeadlineExceeded:
                raise
            except Exception as error:  # noqa: BLE001 - raised where the vector is used
                made[provider, request.query] = error
        return made

    def _depths(self, request: Request, end: int) -> list[int]:
        """How many records each side finds. Pages that need more double it; each depth adds hits
        behind those of the previous one, so that pages do not overlap."""
        depths = [max(request.width, _LEAST_WIDTH) * self._settings.overfetch]
        while depths[-1] < end:
            depths.append(2 * depths[-1])
        return depths

    def _block(self, request: Request) -> int:
        """How many candidates a reranker orders among themselves."""
        return max(self._settings.rerank_candidates, request.width)

    def _reranked_count(self, request: Request) -> int:
        """How many candidates are reranked: whole blocks. A further page adds hits behind those of
        the previous blocks, so that pages do not overlap."""
        block = self._block(request)
        return -(-request.end // block) * block

    def forget(self) -> None:
        """Clear the cache: a kind was registered, which may change its chunks."""
        self._recall = None

    # candidates
    def _look(self, request: Request, depths: Sequence[int]) -> _Look:
        """What was found, and with what it was searched. A slow provider may answer after the
        version it was asked for was retired and dropped: then the search is repeated."""
        while True:
            began = self._store.now()
            recall = self._recalled(request.version)
            scope = recall.scope(request.kinds)
            if request.version is not None:
                request = self._in_version(request, scope)
            asked = nearest = None
            if request.mode != "text" and scope.serving:
                asked, nearest = self._by_vector(request, scope, depths, recall)
                if self._store.now() - began >= _QUICK and not self._are_all_kept(scope):
                    continue
            evidence = self._candidates.evidence(request, recall, nearest, depths)
            return _Look(recall, scope, None if evidence.via == "text" else asked, evidence)

    def _are_all_kept(self, scope: Scope) -> bool:
        mine = self._store.versions.collections_of(self._tenant)
        kept = {c.version for c in mine if c.state != "retired"}
        return all(s.version in kept for s in scope.serving)

    def _recalled(self, version: str | None) -> SearchCache:
        """The cache of versions and records; a new one after any write. The cache for a version by
        name is not kept: such a search is rare."""
        mark, recall = self._store.mark(), self._recall
        if version is not None:
            return self._new_cache(mark, version)
        if recall is None or recall.mark != mark or recall.is_full:
            recall = self._recall = self._new_cache(mark, None)
        return recall

    def _new_cache(self, mark: int, version: str | None) -> SearchCache:
        mine = self._store.versions.collections_of(self._tenant)
        rescores = {c.kind: c.rescore for c in mine}
        if self._store.read_only:  # then a registered kind cannot save its own
            rescores |= {k.name: k.rescoring for k in self._kinds.values() if k.rescoring}
        serving = self._serving(mine, version)
        return SearchCache(self._store, self._tenant, rescores, mark, serving)

    def _in_version(self, request: Request, scope: Scope) -> Request:
        """The search of one version, limited to the kinds that have it: words must not add records
        of others."""
        if scope.serving:
            return replace(request, kinds=tuple(s.kind for s in scope.serving))
        mine = self._store.versions.collections_of(self._tenant)
        named = [c for c in mine if c.spec and c.spec.name == request.version]
        if any(c.state != "retired" and _is_asked(request, c) for c in named):
            raise InvalidArgument(f"this process has no model for version {request.version!r}")
        raise InvalidArgument(
            f"the searched kinds have no version {request.version!r}: see `versions`"
        )

    def _serving(
        self, collections: Sequence[Collection], version: str | None
    ) -> list[ServingVersion]:
        """The serving version of each of the tenant's kinds. If this process lacks its model to
        embed a query, the standby version, which also receives every change. With a name: the
        version of that name, whatever its state."""
        chosen: dict[str, ServingVersion] = {}
        for state in (
            ("serving", "standby") if version is None else ("serving", "standby", "building")
        ):
            for c in collections:
                if version is not None and (c.spec is None or c.spec.name != version):
                    continue
                if c.state == state and c.kind not in chosen and (model := self._models.of(c.spec)):
                    assert c.spec is not None
                    kind = self._kinds.get(c.kind)
                    chunker = kind.chunker if kind else None
                    chunker = chunker or parse_chunker(c.chunker, model.chunker)
                    chosen[c.kind] = ServingVersion(c.kind, c.version, c.spec.name, model, chunker)
        return list(chosen.values())

    def _by_vector(
        self, request: Request, scope: Scope, depths: Sequence[int], recall: SearchCache
    ) -> tuple[_Asked | None, Nearest | None]:
        """The query's vectors and the nearest records of all kinds; None when the model or the
        index is unavailable."""
        limit, conditions = depths[-1], request.conditions
        try:
            if self._checked is not recall:  # the store changed since
                check_generation(self._store, self._index)
                self._checked = recall
            asked = self._vectors(request, scope)
            queries = [
                Query(s.version, self._tenant, asked[s.model], limit, conditions, recall.mark)
                for s in scope.serving
            ]
            return asked, self._candidates.nearest(queries, depths, recall)
        except (DeadlineExceeded, InvalidArgument, ReplicaFailed):
            raise
        except QueryRefused:  # logged there, once
            return None, None
        except Exception as error:
            if request.query is None:
                raise
            # full text can answer instead
            log.warning("search uses text only: %s", describe(error))
            return None, None

    def _vectors(self, request: Request, scope: Scope) -> dict[Model, NDArray[np.float32]]:
        """The query as a vector, for each model."""
        if request.vector is None:
            query = request.query or ""
            return {m: m.provider.embed_query(query, self._tenant) for m in scope.models}
        for serving in scope.serving:
            if (size := serving.dimensions) != len(request.vector):
                raise InvalidArgument(
                    f"vector has {len(request.vector)} numbers, but the vectors of "
                    f"{serving.kind!r} ({serving.name}) have {size}: use the same model, or give "
                    "the kind to search"
                )
        return dict.fromkeys(scope.models, request.vector)

    # ranking
    def _order(self, request: Request, look: _Look, depths: Sequence[int]) -> Order:
        """The live records in the order of the hits."""
        order = Order(self._store.now())
        for depth in depths:
            found = rank(look.evidence, depth, look.recall, order.now)
            if order.ranked:
                found = [entry for entry in found if entry[1] not in order]
            found = _relevant(request, found)
            if request.diversity:
                found = self._diverse(request, look, found)
            order.add(found)
        return order

    def _reranked(self, request: Request, look: _Look, reranker: SharedReranker) -> list[Hit]:
        """The best records in the order that the reranker gives them, and of them those that are
        relevant enough. Raises `NotReranked`."""
        count, size = self._reranked_count(request), self._block(request)
        plain = replace(request, min_relevance=None, diversity=None)
        order = self._order(plain, look, self._depths(request, count))
        ranked, order.ranked = order.ranked[:count], []
        maker = self._maker(request, look)
        texts = maker.texts(ranked, look.evidence)
        scores = reranker.score(request.query or "", list(texts.values()))
        order.rerank = Rerank(reranker.name, dict(zip(texts, scores, strict=True)))
        for start in range(0, len(ranked), size):
            block = order.rerank.rank(ranked[start : start + size], look.recall, order.now)
            kept = _relevant(request, block)
            if request.diversity:
                kept = self._diverse(request, look, kept)
            order.ranked += kept
            if len(kept) < len(block):  # earlier pages ended here, and later ones must not go on
                break
        return maker.make(order, look.evidence)

    def _diverse(self, request: Request, look: _Look, ranked: list[Ranked]) -> list[Ranked]:
        """The records in an order in which they differ as requested; in the same order, if no
        vectors could be searched."""
        assert request.diversity is not None
        vectors = self._best_vectors(look, ranked)
        return diversify(ranked, vectors, request.diversity, request.end) if vectors else ranked

    def _best_vectors(
        self, look: _Look, ranked: Sequence[Ranked]
    ) -> dict[int, NDArray[np.float32]]:
        """For each record the vector of the chunk that is nearest to the query. Those of different
        models have their numbers in different places, so that they are not compared."""
        found: dict[int, NDArray[np.float32]] = {}
        if look.asked is None:
            return found
        import numpy as np

        sizes = [len(vector) for vector in look.asked.values()]
        before = dict(zip(look.asked, accumulate(sizes, initial=0), strict=False))
        for serving in look.scope.serving:
            stored = self._index.vectors(serving.version, [record for _, record, _ in ranked])
            wanted, start = look.asked[serving.model], before[serving.model]
            for record, chunks in stored.items():
                cosines = [float(chunk.vector @ wanted) for chunk in chunks]
                best = chunks[cosines.index(max(cosines))].vector
                after = sum(sizes) - start - len(best)
                found[record] = np.pad(best, (start, after)) if len(sizes) > 1 else best
        return found


def _is_asked(request: Request, collection: Collection) -> bool:
    return request.kinds is None or collection.kind in request.kinds


def _relevant(request: Request, ranked: list[Ranked]) -> list[Ranked]:
    """The records that reach the thresholds; one without vectors reaches no similarity."""
    if not request.has_threshold:
        return ranked
    return [item for item in ranked if request.reaches(-item[0], item[2])]
