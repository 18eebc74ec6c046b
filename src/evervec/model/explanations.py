"""Why a search result has its relevance."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MatchedWord:
    """A word of a hit's text that is a word of the query, by its stem."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Reranked:
    """What a reranker said of a hit, and what the search said before."""

    reranker: str
    """its name"""
    score: float
    """from 0 to 1"""
    relevance: float
    """before"""
    parts: dict[str, float]
    """"meaning" and "words": they add up to the relevance before"""


@dataclass(frozen=True, slots=True)
class Explanation:
    """How the relevance of a hit was calculated.

    `relevance = (meaning + (1 - meaning) * words) * weight_factor * age_factor`; `parts` are its
    two summands. Of a reranked hit, `relevance = score * weight_factor * age_factor`.
    """

    parts: dict[str, float]
    """"meaning" and "words", or "rerank": they add up to the relevance"""
    meaning: float
    """the cosine, from 0 to 1; 0 for a record that has no vectors yet"""
    words: float
    """0.8 times the share of the query's words that the best record by words contains, times the
    text score as a fraction of that record's"""
    similarity: float | None
    text_score: float | None
    """the store's full-text score"""
    semantic_rank: int | None
    """place among the nearest records, from 1"""
    text_rank: int | None
    """place among the records with the query's words, from 1"""
    weight: float
    weight_factor: float
    age_days: float
    age_factor: float
    matched: tuple[MatchedWord, ...]
    """words of the query in the hit's text"""
    position: int | None
    """of the chunk in the record, from 0; None if the text is not an embedded chunk"""
    start: int
    end: int
    """of the hit's text in the record's text"""
    headings: tuple[str, ...]
    """above the chunk"""
    version: str | None
    """the embedding version that was searched"""
    seq: int
    """of the record"""
    reranked: Reranked | None = None
    """set if the hits were reranked"""
