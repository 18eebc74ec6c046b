"""The order of hits: what vectors and words say of each candidate, weight and age.

Both sides are numbers from 0 to 1 that do not depend on which other records were found: the cosine,
and the share of the query's words that the best record by words contains, scaled by the text
scores. They are combined as independent evidence, `1 - (1 - meaning) * (1 - words)`. So a relevance means the
same in every query and can be compared with a threshold, and a deeper search changes no score.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from evervec.indexes.base import Matches
from evervec.search.cache import SearchCache

WORDS = 0.8
"""What words alone say of a record that has all of the query's. Chosen by nDCG@10 on SciFact, with
30 candidates of each side: 0.738 with MiniLM and 0.696 with WordLlama. Scores that were stretched
between the best and the last candidate gave 0.731 and 0.685, 1.0 gives 0.736 and 0.701, and 0.6
0.735 and 0.687."""

Ranked = tuple[float, int, float | None]
"""negated relevance, record, similarity"""


@dataclass(slots=True)
class Evidence:
    """What a search found by vectors and by words, the best first."""

    via: str
    near: Matches = field(default_factory=Matches)
    texts: Sequence[tuple[int, float]] = ()
    """records with their text scores"""
    share: Callable[[int], float] = lambda record: 1.0
    """the share of the query's words that a record contains"""
    text_scores: dict[int, float] = field(init=False)
    _share: float | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.text_scores = dict(self.texts)

    def within(self, depth: int) -> Scores:
        """The scores of the candidates that either side found within this depth."""
        near = dict(zip(self.near.records[:depth], self.near.scores[:depth], strict=True))
        if self.via == "semantic":
            return Scores(near, {}, 0.0, 0.0)
        texts = self.text_scores if len(self.texts) <= depth else dict(self.texts[:depth])
        # a record that is not among the nearest is at most as near as the last of them, if there
        # are more
        floor = min(near.values(), default=0.0) if len(self.near) >= depth else 0.0
        return Scores(near, texts, max(floor, 0.0), self._scale())

    def _scale(self) -> float:
        if not self.texts:
            return 0.0
        record, best = self.texts[0]
        if self._share is None:
            self._share = self.share(record)
        return WORDS * self._share / best if best > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Scores:
    """The scores of some candidates."""

    near: Mapping[int, float]
    """cosines"""
    texts: Mapping[int, float]
    """text scores"""
    floor: float
    """counts as the cosine of a record that only words found"""
    scale: float
    """of text scores"""

    def meaning(self, record: int) -> float:
        return self.near.get(record, self.floor)

    def words(self, record: int) -> float:
        return self.texts.get(record, 0.0) * self.scale

    def all(self) -> dict[int, float]:
        """The combined score of each candidate."""
        if not self.texts:
            return dict(self.near)
        near, texts, floor, scale = self.near, self.texts, self.floor, self.scale
        return {
            record: 1.0 - (1.0 - near.get(record, floor)) * (1.0 - texts.get(record, 0.0) * scale)
            for record in near.keys() | texts.keys()
        }


def rank(scores: Scores, recall: SearchCache, now: float) -> list[Ranked]:
    """The live ones of the candidates, best first."""
    ranked = _weighted(scores.all(), scores.near, recall, now)
    ranked.sort()
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
    """Records in the order of the hits, with the scores that ranked them."""

    def __init__(self, now: float) -> None:
        self.now = now
        """of the records' ages"""
        self.ranked: list[Ranked] = []
        self.rerank: Rerank | None = None
        self._scores: dict[int, Scores] = {}

    def add(self, ranked: Sequence[Ranked], scores: Scores) -> None:
        """Append records of a deeper search."""
        self.ranked += ranked
        self._scores.update(dict.fromkeys((record for _, record, _ in ranked), scores))

    def __contains__(self, record: int) -> bool:
        return record in self._scores

    def scores_of(self, record: int) -> Scores:
        return self._scores[record]
