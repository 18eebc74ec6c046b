"""How long to wait after a failure."""

from __future__ import annotations

from evervec.settings import Settings


def backoff(attempts: int, settings: Settings) -> float:
    """Seconds until the next attempt: doubled with each attempt, capped, with jitter."""
    doubled = settings.backoff_seconds * 2.0 ** min(max(attempts - 1, 0), 60)
    wait = min(doubled, settings.backoff_cap_seconds)
    return wait * (1 + settings.backoff_jitter * settings.rng.uniform(-1, 1))
