"""The candidates of a search: what vectors find, what words find, and of each record both scores."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import NamedTuple

from evervec.embedders.base import describe
from evervec.errors import DeadlineExceeded
from evervec.indexes.base import Index, Matches, Query
from evervec.model.deadlines import check
from evervec.model.filters import Conditions
from evervec.search.cache import SearchCache
from evervec.search.matched_words import coverage, has_words, is_like_stop_words, query_stems
from evervec.search.ranking import Evidence
from evervec.search.request import Request
from evervec.stores.base import Store
from evervec.stores.values import ReplicaFailed

log = logging.getLogger("evervec")

_AT_ONCE = 256
"""records whose cosines are asked for at once"""
_UNSURE = 500
"""records that are read for a query of words that full text takes for stop words, such as a name"""


class Nearest(NamedTuple):
    """The nearest records, and by which queries."""

    queries: Sequence[Query]
    matches: Matches
    within: Mapping[int, int]
    """how many of them are found within each depth"""
    are_more: bool


@dataclass(frozen=True, slots=True)
class CandidateFinder:
    """Finds the candidates of one tenant's searches."""

    _store: Store
    _index: Index
    _tenant: str

    def nearest(
        self, queries: Sequence[Query], depths: Sequence[int], recall: SearchCache
    ) -> Nearest:
        """The nearest records within each depth, by a query for each version.

        An index may find other records when it is asked for more, or equal ones in another order.
        So each depth is searched by itself, and what it adds follows: then pages do not overlap."""
        near: dict[int, tuple[float, bytes]] = {}
        within: dict[int, int] = {}
        for depth in depths:
            found = [self._index.search(replace(query, limit=depth)) for query in queries]
            all = found[0] if len(found) == 1 else Matches.of(chain.from_iterable(found), depth)
            are_more = len(all) >= depth
            if (conditions := queries[0].conditions) and not self._index.shares_store:
                all = _still_fitting(recall, all, conditions)
            if len(depths) == 1:
                return Nearest(queries, all, {depth: len(all)}, are_more)
            for record, hash, score in all:
                near.setdefault(record, (score, hash))
            within[depth] = len(near)
            if not are_more:
                break
        scores, hashes = zip(*near.values(), strict=True) if near else ((), ())
        matches = Matches(list(near), scores, hashes)
        every = dict.fromkeys(depths, len(near)) | within
        return Nearest(queries, matches, every, are_more)

    def evidence(
        self,
        request: Request,
        recall: SearchCache,
        nearest: Nearest | None,
        depths: Sequence[int],
    ) -> Evidence:
        """What vectors and words found; without vectors if the index does not answer any more."""
        via = "text" if nearest is None else request.mode
        near = Matches() if nearest is None else nearest.matches
        within: Mapping[int, int] = {} if nearest is None else nearest.within
        are_more = nearest is not None and nearest.are_more
        if via == "semantic" or request.query is None:
            return Evidence(via, near, near_within=within, are_more_near=are_more)
        texts, scores = self._texts(request, depths[-1], near.records, recall)
        share = partial(_share, recall, request.query)
        cosines: dict[int, float] = {}
        if nearest is not None:
            try:
                cosines = self._cosines(nearest, [record for record, _ in texts], depths)
            except (DeadlineExceeded, ReplicaFailed):
                raise
            except Exception as error:  # noqa: BLE001 - full text can answer instead
                log.warning("search uses text only: %s", describe(error))
                return Evidence("text", texts=texts, share=share)
        return Evidence(via, near, texts, share, within, cosines, scores, are_more)

    def _texts(
        self, request: Request, limit: int, near: Sequence[int], recall: SearchCache
    ) -> tuple[list[tuple[int, float]], dict[int, float]]:
        """The records with the query's words, the best first; and all known scores, also of
        records that are near."""
        query = request.query or ""
        is_unsure = is_like_stop_words(query)
        found = [
            self._store.records.search_text(
                self._tenant, kind, query, max(limit, _UNSURE) if is_unsure else limit,
                request.conditions, near,
            )
            for kind in request.kinds or (None,)
        ]  # fmt: skip
        if is_unsure:
            found = [_with_words(recall, query, some) for some in found]
        scores = dict(chain.from_iterable(found))
        if len(found) == 1:
            return found[0][:limit], scores
        best = {record for scored in found for record, _ in scored[:limit]}
        ranked = sorted(best, key=lambda record: (-scores[record], record))
        return [(record, scores[record]) for record in ranked[:limit]], scores

    def _cosines(
        self, nearest: Nearest, texts: Sequence[int], depths: Sequence[int]
    ) -> dict[int, float]:
        """The cosines of what vectors found and of what words found. Depth by depth, as shallower
        searches do it: by rounding, the same cosine may come out different when others are
        calculated with it, and records that are about equal would change places."""
        found: dict[int, float] = {}
        near, scores = nearest.matches.records, nearest.matches.scores
        for depth in depths:
            some = slice(nearest.within[depth])
            found = dict(zip(near[some], scores[some], strict=True)) | found
            rest = [record for record in texts[:depth] if record not in found]
            for start in range(0, len(rest), _AT_ONCE):
                for query in nearest.queries:  # a record has vectors in the version of its kind
                    check()
                    found |= self._index.similarities(query, rest[start : start + _AT_ONCE])
        return found


def _share(recall: SearchCache, query: str | None, record: int) -> float:
    """The share of the query's words that a record which words found contains."""
    if not query or len(query_stems(query)) < 2:
        return 1.0
    read = next(recall.read([record]))
    return 1.0 if read is None else coverage(query, read.title, read.found.text)


def _with_words(
    recall: SearchCache, query: str, found: Sequence[tuple[int, float]]
) -> list[tuple[int, float]]:
    """Of the records that full text found, those that have the query's words as they are written."""
    read = recall.read([record for record, _ in found])
    good = [
        item
        for item, known in zip(found, read, strict=True)
        if known is not None and has_words(query, known.title, known.found.text)
    ]
    return sorted(good, key=lambda item: (-item[1], item[0]))


def _still_fitting(recall: SearchCache, found: Matches, conditions: Conditions) -> Matches:
    """Drop matches that no longer fit the filter: an index outside the store has the metadata of
    its last write."""
    read = zip(found, recall.read(found.records), strict=True)
    good = (match for match, known in read if known is not None and known.fits(conditions))
    return Matches.best_first(good, len(found))
