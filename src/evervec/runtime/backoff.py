"""How long to wait after failures."""

from __future__ import annotations

import random


def backoff(
    failures: int,
    first: float,
    longest: float,
    jitter: float = 0.0,
    rng: random.Random | None = None,
) -> float:
    """Seconds to wait after so many failures in a row: doubled with each, capped. With `rng`, up to
    the share `jitter` is added or taken away."""
    wait = min(first * 2.0 ** min(max(failures - 1, 0), 60), longest)
    return wait if rng is None else wait * (1 + jitter * rng.uniform(-1, 1))
