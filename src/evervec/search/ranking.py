"""The order of hits: what vectors and words say of each candidate, weight and age.

Both sides are numbers from 0 to 1 that do not depend on which other records were found: the cosine,
and the share of the query's words that the best record by words contains, scaled by the text
scores. They are combined as independent evidence, `1 - (1 - meaning) * (1 - words)`. Of a record that
one side found, the other side is looked up. So a relevance means the same in every query and can be
compared with a threshold, and a deeper search changes no score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from evervec.indexes.base import Matches
from evervec.search.cache import SearchCache

WORDS = 0.8
"""What words alone say of a record that has all of the query's. Chosen by nDCG@10 on SciFact, with
30 candidates of each side: 0.738 with MiniLM and 0.696 with WordLlama. Scores that were stretched
between the best and the last candidate gave 0.731 and 0.685, 1.0 gives 0.736 and 0.701, and 0.6
0.735 and 0.687."""

Ranked = tuple[float, int, float | None]
"""negated relevance, record, similarity"""


class Rest(NamedTuple):
    """The most that a record which was not found can have."""

    score: float
    cosine: float | None
    """None: it has no vectors"""


@dataclass(slots=True)
class Evidence:
    """What a search found by vectors and by words, the best first."""

    via: str
    near: Matches = field(default_factory=Matches)
    texts: Sequence[tuple[int, float]] = ()
    """records with their text scores"""
    share: Callable[[int], float] = lambda record: 1.0
    """the share of the query's words that a record contains"""
    near_within: Mapping[int, int] = field(default_factory=dict)
    """how many of `near` a search of a depth finds; those of a deeper one follow"""
    cosines: dict[int, float] = field(default_factory=dict)
    """of all candidates that have vectors, also of those that only words found"""
    text_scores: dict[int, float] = field(default_factory=dict)
    """of all candidates that words match, also of those that are not among the best"""
    are_more_near: bool = False
    """the index has records that are less near"""
    scale: float = field(default=0.0, init=False)
    """of text scores"""
    _places: dict[int, int] = field(default_factory=dict, init=False)
    _text_places: dict[int, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.cosines = self.near.similarity | self.cosines
        self.text_scores |= dict(self.texts)
        if self.texts:
            record, best = self.texts[0]
            self.scale = WORDS * self.share(record) / best if best > 0 else 0.0

    def meaning(self, record: int) -> float:
        """The cosine; 0 of a record that has no vectors, or points away from the query."""
        # by rounding, a cosine may be above 1
        return min(max(self.cosines.get(record, 0.0), 0.0), 1.0)

    def words(self, record: int) -> float:
        return self.text_scores.get(record, 0.0) * self.scale

    def rest(self, depth: int) -> Rest | None:
        """The most that records have which neither side finds within this depth, the deepest; None
        if all were found."""
        are_more_texts = len(self.texts) >= depth
        if not self.are_more_near and not are_more_texts:
            return None
        cosine = min(self.near.scores, default=1.0) if self.are_more_near else None
        words = self.texts[depth - 1][1] * self.scale if are_more_texts else 0.0
        return Rest(1.0 - (1.0 - max(cosine or 0.0, 0.0)) * (1.0 - words), cosine)

    def hash_of(self, record: int) -> bytes | None:
        """The hash of the chunk that vectors found. None if words find the record in a shallower
        search than vectors do: so a deeper search shows the same part of it."""
        if len(self.near_within) < 2:
            return self.near.hash_of(record)
        if not self._places:
            self._places.update((one, place) for place, one in enumerate(self.near.records))
            texts = ((one, place) for place, (one, _) in enumerate(self.texts))
            self._text_places.update(texts)
        if (place := self._places.get(record)) is None:
            return None
        words = self._text_places.get(record, math.inf)
        for depth, count in self.near_within.items():
            if place < count:
                break
            if words < depth:
                return None
        return self.near.hashes[place]

    def within(self, depth: int) -> dict[int, float]:
        """The combined scores of the candidates that either side finds within this depth."""
        near = self.near.records[: self.near_within.get(depth, depth)]
        if not self.texts:
            return {record: self.meaning(record) for record in near}
        records = dict.fromkeys(near)
        records.update(dict.fromkeys(record for record, _ in self.texts[:depth]))
        cosines, texts, scale = self.cosines.get, self.text_scores.get, self.scale
        return {
            record: 1.0
            - (1.0 - min(max(cosines(record, 0.0), 0.0), 1.0)) * (1.0 - texts(record, 0.0) * scale)
            for record in records
        }


def rank(evidence: Evidence, depth: int, recall: SearchCache, now: float) -> list[Ranked]:
    """The live ones of the candidates within a depth, best first."""
    ranked = _weighted(evidence.within(depth), evidence.cosines, recall, now)
    ranked.sort()
    if ranked and ranked[-1][0] == 0.0:  # those that point away from the query, by how far
        ranked.sort(key=lambda entry: (entry[0], -min(entry[2] or 0.0, 0.0)))
    return ranked


def _weighted(
    all: Mapping[int, float], near: Mapping[int, float | None], recall: SearchCache, now: float
) -> list[Ranked]:
    """The live ones of the records, their scores changed by weight and age."""
    ranked = []
    for (record, score), factors in zip(all.items(), recall.factors(all), strict=True):
        if factors is not None:  # otherwise it was deleted after its vector was written
            strength, decay, _, updated_at = factors
            age = now - updated_at if now > updated_at else 0.0
            ranked.append((-score * strength / (1.0 + age / decay), record, near.get(record)))
    return ranked


@dataclass(frozen=True, slots=True)
class Rerank:
    """What a reranker said of the records of an order."""

    name: str
    scores: Mapping[int, float]
    """by record, from 0 to 1"""

    def rank(self, ranked: Sequence[Ranked], recall: SearchCache, now: float) -> list[Ranked]:
        """Those of the records that have a score and are live, the best first; equal ones keep
        their order."""
        near = {record: cosine for _, record, cosine in ranked if record in self.scores}
        found = _weighted({record: self.scores[record] for record in near}, near, recall, now)
        found.sort(key=lambda entry: entry[0])
        return found


class Order:
    """Records in the order of the hits."""

    def __init__(self, now: float) -> None:
        self.now = now
        """of the records' ages"""
        self.ranked: list[Ranked] = []
        self.rerank: Rerank | None = None
        self._records: set[int] = set()

    def add(self, ranked: Sequence[Ranked]) -> None:
        """Append records of a deeper search."""
        self.ranked += ranked
        self._records.update(record for _, record, _ in ranked)

    def __contains__(self, record: int) -> bool:
        return record in self._records
