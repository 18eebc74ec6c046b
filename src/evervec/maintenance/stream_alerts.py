"""What is wrong with followed change streams: their followers wait, or there are none."""

from __future__ import annotations

from collections.abc import Iterator

from evervec.maintenance.alerts import Problem
from evervec.stores.base import Store
from evervec.stores.notes import STREAM_PAUSE

_UNSEEN_SECONDS = 300.0
"""after which a stream counts as not followed; followers report at least every 10 seconds"""


def stream_problems(store: Store, patience: float) -> Iterator[Problem]:
    """Streams that wait, and streams that nobody follows; `patience`: 0 for none. A stream that was
    drained, as asked for, needs no follower."""
    if not patience:
        return
    waiting: list[tuple[float, str]] = []
    unseen: list[tuple[float, str]] = []
    for stream in store.streams.states(None):
        pause = STREAM_PAUSE.of(stream.name, stream.tenant).get(store.shared)
        name = f"{stream.name} of {stream.tenant}"
        if pause is not None and pause.reason:
            waiting.append((pause.since, f"the stream {name} waits: {pause.reason}"))
        seen = stream.seen_at.timestamp() if stream.seen_at else None
        is_drained = pause is not None and not pause.reason
        if seen is not None and not is_drained and seen < store.now() - _UNSEEN_SECONDS:
            unseen.append((seen, f"nobody follows the stream {name}: start `evervec follow`"))
    if waiting:
        yield Problem("streams waiting", *_oldest(waiting), patience)
    if unseen:
        yield Problem("streams unfollowed", *_oldest(unseen), patience)


def _oldest(found: list[tuple[float, str]]) -> tuple[str, float]:
    """The text and time of the oldest, and how many there are besides."""
    since, text = min(found)
    return text + (f"; and {len(found) - 1} more" if len(found) > 1 else ""), since
