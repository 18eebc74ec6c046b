"""Merges the results of vector search and full-text search into one order."""

from __future__ import annotations

from collections.abc import Mapping


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
