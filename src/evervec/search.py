"""Search: full text and vectors, fused, re-scored by weight and age.

More candidates than asked for are fetched, so that re-scoring has a choice. Hits are
joined with the live records, so what was deleted is gone at once. Where there are no
vectors to search (no embedder, provider or index away), text answers and `via` says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evervec.chunking import SizeChunker, chunk_text
from evervec.drafts import check_text
from evervec.embedders.base import Embedder, describe, embed_query, spec_of
from evervec.errors import EmbedderError, IndexUnavailable, InvalidArgument
from evervec.filters import parse_filter
from evervec.indexes.base import Index
from evervec.kinds import Kind, Rescore
from evervec.model import Hit, Hits, Match
from evervec.settings import Settings
from evervec.stores.base import Found, Store

log = logging.getLogger("evervec")

MODES = ("hybrid", "semantic", "text")
_PLAIN = Rescore()
_WORD = re.compile(r"\w+")


@dataclass(slots=True)
class _Ranked:
    """A record on its way to being a hit."""

    record: int
    match: Match | None
    in_text: bool
    relevance: float

    @property
    def via(self) -> str:
        if self.match is None:
            return "text"
        return "hybrid" if self.in_text else "semantic"


class Search:
    """Searches of one tenant."""

    def __init__(
        self,
        store: Store,
        index: Index,
        embedder: Embedder,
        kinds: Mapping[str, Kind],
        settings: Settings,
        tenant: str,
    ) -> None:
        self._store = store
        self._index = index
        self._embedder = embedder
        self._kinds = kinds
        self._settings = settings
        self._tenant = tenant
        self._model = spec_of(embedder)
        self._chunker = SizeChunker(settings.chunk_chars)

    def search(
        self,
        query: str,
        k: int = 10,
        kind: str | None = None,
        mode: str = "hybrid",
        filter: Mapping[str, Any] | None = None,
    ) -> Hits:
        _check(query, k, mode)
        parse_filter(filter)
        limit = k * self._settings.overfetch
        matches = None if mode == "text" else self._by_vector(query, kind, limit, filter)
        via = "text" if matches is None else mode
        scores: dict[int, float] = {}
        if via != "semantic":
            scores = dict(self._store.search_text(self._tenant, kind, query, limit, filter))
        ranked = self._rank(matches or [], scores, via)[:k]
        found = self._store.found([r.record for r in ranked])
        hits = (self._hit(query, r, found[r.record]) for r in ranked if r.record in found)
        return Hits(
            hits, via=via, version=self._model.name if matches is not None and self._model else None
        )

    def _by_vector(
        self, query: str, kind: str | None, limit: int, filter: Mapping[str, Any] | None
    ) -> list[Match] | None:
        """The nearest records of all kinds; None when there are no vectors to search."""
        if self._model is None:
            return None
        serving = [
            c.version
            for c in self._store.collections(None, {})
            if c.state == "serving" and c.spec == self._model and kind in (None, c.kind)
        ]
        if not serving:
            return None
        try:
            vector = embed_query(self._embedder, query)
            matches = [
                match
                for version in serving
                for match in self._index.search(version, self._tenant, vector, limit, filter)
            ]
        except (EmbedderError, IndexUnavailable) as error:
            log.warning("search answers from text alone: %s", describe(error))
            return None
        if len(serving) > 1:
            matches.sort(key=lambda m: -m.similarity)
        return matches[:limit]

    def _rank(self, matches: list[Match], scores: dict[int, float], via: str) -> list[_Ranked]:
        """Candidates that are alive, by relevance."""
        near = {m.record: m for m in matches}
        base = fuse(near, scores) if via == "hybrid" else _single(near, scores)
        alive = self._store.candidates(self._tenant, list(base))
        now = self._store.now()
        ranked = []
        for record, candidate in alive.items():
            kind = self._kinds.get(candidate.kind)
            rescore = kind.rescore if kind else _PLAIN
            factor = rescore.factor(candidate.weight, now - candidate.updated_at)
            ranked.append(
                _Ranked(record, near.get(record), record in scores, base[record] * factor)
            )
        ranked.sort(key=lambda r: (-r.relevance, r.record))
        return ranked

    def _hit(self, query: str, ranked: _Ranked, found: Found) -> Hit:
        match = ranked.match
        if match is None:
            text = self._best_piece(query, found)
        else:
            text = chunk_text(found.chunks, match.hash, found.title, found.text)
        return Hit(
            found.kind, found.id, found.title, text, match.similarity if match else None,
            ranked.relevance, found.metadata, ranked.via,
        )  # fmt: skip

    def _best_piece(self, query: str, found: Found) -> str:
        """The piece that holds most of the query's words."""
        words = {word.lower() for word in _WORD.findall(query)}
        best, most = "", -1
        for start, end in self._chunker.split(found.text):
            piece = found.text[start:end]
            lowered = piece.lower()
            count = sum(word in lowered for word in words)
            if count > most:
                best, most = piece, count
        return best


def fuse(near: Mapping[int, Match], scores: Mapping[int, float]) -> dict[int, float]:
    """Half of each score, both brought to 0..1 by their best; what one did not find counts
    nothing there."""
    best_near = max((m.similarity for m in near.values()), default=0.0)
    best_text = max(scores.values(), default=0.0)
    fused = {}
    for record in near.keys() | scores.keys():
        match = near.get(record)
        by_meaning = match.similarity / best_near if match and best_near > 0 else 0.0
        by_words = scores.get(record, 0.0) / best_text if best_text > 0 else 0.0
        fused[record] = 0.5 * max(by_meaning, 0.0) + 0.5 * by_words
    return fused


def _single(near: Mapping[int, Match], scores: Mapping[int, float]) -> dict[int, float]:
    """One kind of score alone: the cosine itself, or the text's share of its best."""
    best = max(scores.values(), default=0.0)
    if scores:
        return {record: score / best if best > 0 else 1.0 for record, score in scores.items()}
    return {record: match.similarity for record, match in near.items()}


def _check(query: Any, k: Any, mode: Any) -> None:
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise InvalidArgument(f"k must be a whole number of at least 1, not {k!r}")
    if mode not in MODES:
        raise InvalidArgument(f"there is no mode {mode!r}; there are {', '.join(MODES)}")
    try:
        check_text("query", query)
    except ValueError as error:
        raise InvalidArgument(str(error)) from None
