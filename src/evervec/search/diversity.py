"""Hits that differ from each other: maximal marginal relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from evervec.model.deadlines import check
from evervec.search.ranking import Ranked

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def diversify(
    ranked: Sequence[Ranked],
    vectors: Mapping[int, NDArray[np.float32]],
    diversity: float,
    count: int,
) -> list[Ranked]:
    """The ranked records in another order, the first `count` of them chosen one by one: each has
    the highest relevance, reduced by its largest cosine to one that was chosen before. `diversity`
    0 keeps the order, 1 considers only the difference. A record without a vector differs from
    all."""
    import numpy as np

    if not ranked:
        return []
    size = next((len(vector) for vector in vectors.values()), 1)
    zero = np.zeros(size, dtype=np.float32)
    points = np.stack([vectors.get(record, zero) for _, record, _ in ranked])
    # of those that point away from the query, by how far
    worth = [-rank if rank else min(cosine or 0.0, 0.0) for rank, _, cosine in ranked]
    relevance = (1.0 - diversity) * np.array(worth)
    nearest = np.zeros(len(ranked))
    left = np.ones(len(ranked), dtype=bool)
    chosen: list[int] = []
    for _ in range(min(count, len(ranked))):
        check()
        gain = relevance - diversity * nearest
        best = int(np.argmax(np.where(left, gain, -np.inf)))
        chosen.append(best)
        left[best] = False
        cosines = points @ points[best]
        nearest = np.maximum(nearest, cosines) if len(chosen) > 1 else cosines
    chosen += np.flatnonzero(left).tolist()
    return [ranked[place] for place in chosen]
