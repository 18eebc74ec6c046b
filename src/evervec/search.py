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
from typing import Any, NamedTuple

from evervec.chunking import SizeChunker
from evervec.drafts import check_text
from evervec.embedders.base import Embedder, describe, embed_query, spec_of
from evervec.errors import IndexUnavailable, InvalidArgument
from evervec.filters import parse_filter
from evervec.indexes.base import Index
from evervec.kinds import Kind, Rescore
from evervec.model import Hit, Hits, Match, quick_maker
from evervec.settings import Settings
from evervec.stores.base import Candidate, Found, Store, find_chunk

log = logging.getLogger("evervec")

MODES = ("hybrid", "semantic", "text")
_PLAIN = Rescore()
_REMEMBERED = 100_000
_make_hit = quick_maker(Hit)
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


class _Memory(NamedTuple):
    """What searches need of versions and records, true as long as the store's mark is this."""

    mark: int
    serving: list[tuple[str, int]]
    candidates: dict[int, Candidate | None]


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
        self._memory: _Memory | None = None

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
        memory = self._recall()
        serving = [version for name, version in memory.serving if kind in (None, name)]
        matches = None if mode == "text" else self._by_vector(query, serving, limit, filter)
        via = "text" if matches is None else mode
        scores: dict[int, float] = {}
        if via != "semantic":
            scores = dict(self._store.search_text(self._tenant, kind, query, limit, filter))
        ranked = self._rank(memory, matches or [], scores, via)[:k]
        found = self._store.found([r.record for r in ranked])
        hits = (self._hit(query, r, found[r.record]) for r in ranked if r.record in found)
        return Hits(
            hits, via=via, version=self._model.name if matches is not None and self._model else None
        )

    def _recall(self) -> _Memory:
        """What is remembered of versions and records; nothing once anything was written."""
        mark, memory = self._store.mark(), self._memory
        if memory is None or memory.mark != mark or len(memory.candidates) > _REMEMBERED:
            serving = [
                (c.kind, c.version)
                for c in self._store.collections(None, {})
                if c.state == "serving" and c.spec is not None and c.spec == self._model
            ]
            memory = self._memory = _Memory(mark, serving, {})
        return memory

    def _by_vector(
        self, query: str, serving: list[int], limit: int, filter: Mapping[str, Any] | None
    ) -> list[Match] | None:
        """The nearest records of all kinds; None when there are no vectors to search."""
        if not serving:
            return None
        try:
            vector = embed_query(self._embedder, query)
            matches = [
                match
                for version in serving
                for match in self._index.search(version, self._tenant, vector, limit, filter)
            ]
        except IndexUnavailable as error:
            log.warning("search answers from text alone: %s", error)
            return None
        except Exception as error:  # noqa: BLE001 - whatever the model does, text can answer
            log.warning("search answers from text alone: %s", describe(error))
            return None
        if len(serving) > 1:
            matches.sort(key=lambda m: -m.similarity)
        return matches[:limit]

    def _rank(
        self, memory: _Memory, matches: list[Match], scores: dict[int, float], via: str
    ) -> list[_Ranked]:
        """Candidates that are alive, by relevance."""
        near = {m.record: m for m in matches}
        base = fuse(near, scores) if via == "hybrid" else _single(near, scores)
        known = memory.candidates
        unknown = [record for record in base if record not in known]
        if unknown:
            found = self._store.candidates(self._tenant, unknown)
            known.update((record, found.get(record)) for record in unknown)
        now = self._store.now()
        ranked = []
        for record in base:
            candidate = known[record]
            if candidate is None:  # deleted since its vector was written
                continue
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
        place = find_chunk(found.ledger, match.hash) if match and found.ledger else None
        # found by words, or the text moved on since its vector was made: look for the words
        text = found.text[place[0] : place[1]] if place else self._best_piece(query, found)
        return _make_hit(
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
