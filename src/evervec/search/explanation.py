"""Explains the relevance of hits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from evervec.chunking import Chunker
from evervec.chunking.base import Piece
from evervec.model.explanations import Explanation, Reranked
from evervec.model.records import Hit
from evervec.search.cache import Read, Scope, SearchCache
from evervec.search.matched_words import matched_words
from evervec.search.ranking import Evidence, Order

if TYPE_CHECKING:
    from evervec.search.hits import Passage

_DAY = 86400.0


@dataclass
class Explainer:
    """Explains the hits of one search."""

    recall: SearchCache
    scope: Scope
    query: str | None
    order: Order
    evidence: Evidence

    def explained(self, hit: Hit, passage: Passage, read: Read) -> Hit:
        """A hit with its explanation."""
        record = read.found.record
        rerank = self.order.rerank
        meaning, words = self.evidence.meaning(record), self.evidence.words(record)
        (factors,) = self.recall.factors([record])
        assert factors is not None
        strength, decay, weight, updated_at = factors
        age = max(0.0, self.order.now - updated_at)
        recency = 1.0 / (1.0 + age / decay)
        factor = strength * recency
        serving = next((s for s in self.scope.serving if s.kind == read.kind), None)
        parts = {"meaning": meaning * factor, "words": (1.0 - meaning) * words * factor}
        reranked = None
        if rerank is not None:
            score = rerank.scores[record]
            reranked = Reranked(rerank.name, score, sum(parts.values()), parts)
            parts = {"rerank": score * factor}
        explanation = Explanation(
            parts=parts,
            meaning=meaning,
            words=words,
            similarity=hit.similarity,
            text_score=self.evidence.text_scores.get(record),
            semantic_rank=self._semantic_ranks.get(record),
            text_rank=self._text_ranks.get(record),
            weight=weight,
            weight_factor=strength,
            age_days=age / _DAY,
            age_factor=recency,
            matched=matched_words(self.query, passage.text) if self.query else (),
            position=passage.position,
            start=passage.start,
            end=passage.start + len(passage.text),
            headings=_headings(serving.chunker, passage, read.found.text) if serving else (),
            version=serving.name if serving and self.evidence.via != "text" else None,
            seq=read.found.seq,
            reranked=reranked,
        )
        return replace(hit, explanation=explanation)

    @cached_property
    def _semantic_ranks(self) -> dict[int, int]:
        return {record: place for place, record in enumerate(self.evidence.near.records, 1)}

    @cached_property
    def _text_ranks(self) -> dict[int, int]:
        return {record: place for place, (record, _) in enumerate(self.evidence.texts, 1)}


def _headings(chunker: Chunker | None, passage: Passage, text: str) -> tuple[str, ...]:
    """The headings above a chunk, as its chunker sees them."""
    if passage.position is None or chunker is None:
        return ()
    for piece in chunker.split(text):
        if piece[0] >= passage.start:
            context = piece.context if isinstance(piece, Piece) else ""
            return tuple(context.split(" > ")) if context else ()
    return ()
