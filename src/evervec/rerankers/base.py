"""The port to rerankers, and which of their answers are valid."""

from __future__ import annotations

import math
from collections.abc import Coroutine, Sequence
from numbers import Real
from typing import Any, Protocol, runtime_checkable

from evervec.errors import EmbedderError


@runtime_checkable
class Reranker(Protocol):
    """Judges how well texts answer a query; may be called from several threads. `rerank` may be a
    coroutine function: all coroutines run in one event loop, which is not the caller's.

    Optional member: `logits`, True if its scores are not from 0 to 1 but logits.
    """

    name: str

    def rerank(
        self, query: str, texts: Sequence[str]
    ) -> Sequence[float] | Coroutine[Any, Any, Sequence[float]]:
        """One score per text, in their order; higher is better. Raises `ProviderUnavailable`,
        `RateLimited` or `InvalidInput`."""
        ...


class BadScores(EmbedderError):
    """The reranker gave an answer that cannot be right."""


def read_scores(answer: Any, count: int) -> list[float]:
    """The scores of an answer; raises `BadScores` if there is not one number for each text."""
    try:
        given = list(answer)
    except TypeError:
        raise BadScores(f"it returned {type(answer).__name__} instead of scores") from None
    if len(given) != count:
        raise BadScores(f"it returned {len(given)} scores for {count} texts")
    for score in given:
        if isinstance(score, bool) or not isinstance(score, Real) or not math.isfinite(score):
            raise BadScores("it returned a score that is not a finite number")
    return [float(score) for score in given]


def sigmoid(logit: float) -> float:
    """A logit as a number from 0 to 1."""
    return 1.0 / (1.0 + math.exp(-min(max(logit, -700.0), 700.0)))
