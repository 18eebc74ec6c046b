"""How what was found by meaning and by words becomes one order."""

from __future__ import annotations

from collections.abc import Mapping


def fuse(near: Mapping[int, float], scores: Mapping[int, float]) -> dict[int, float]:
    """Half of each score, both stretched to 0..1 between the least and the best that was found.

    Cosines of good and bad hits lie close together, and those of words far apart: stretched,
    neither side can drown the other. What one side did not find counts nothing there.
    """
    meaning, words = _stretched(near), _stretched(scores)
    return {
        record: 0.5 * meaning.get(record, 0.0) + 0.5 * words.get(record, 0.0)
        for record in meaning.keys() | words.keys()
    }


def share_of_best(scores: Mapping[int, float]) -> dict[int, float]:
    """The text's scores alone, each as a share of the best."""
    best = max(scores.values(), default=0.0)
    return {record: score / best if best > 0 else 1.0 for record, score in scores.items()}


def _stretched(scores: Mapping[int, float]) -> dict[int, float]:
    best = max(scores.values(), default=0.0)
    least = min(scores.values(), default=0.0)
    if best <= least:
        return dict.fromkeys(scores, 1.0)
    return {record: (score - least) / (best - least) for record, score in scores.items()}
