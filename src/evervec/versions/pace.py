"""How fast jobs were done lately, by the history that workers keep."""

from __future__ import annotations

from collections.abc import Iterable

from evervec.stores.base import Store
from evervec.stores.base.history import Bucket

_PACE_SECONDS = 600
_LEAST_SECONDS = 60.0


def done_since(store: Store, seconds: int, kind: str | None = None) -> list[Bucket]:
    """The minutes, of the last `seconds`, in which jobs were done; None: of any kind."""
    now = int(store.now())
    found = store.history.buckets(None, kind, 60, now - seconds, now + 60)
    return [bucket for bucket in found if bucket.counts.done]


def jobs_per_second(store: Store, kinds: Iterable[str | None] = (None,)) -> float | None:
    """Over the last minutes in which any were done; None: none were."""
    found = [bucket for kind in kinds for bucket in done_since(store, _PACE_SECONDS, kind)]
    if not found:
        return None
    seconds = max(_LEAST_SECONDS, store.now() - min(bucket.at for bucket in found))
    return sum(bucket.counts.done for bucket in found) / seconds
