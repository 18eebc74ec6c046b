"""Limits the requests and tokens per minute that all workers of a store send to a provider.

A note in the store records what was sent in the last minute, second by second, so that no window of
60 seconds exceeds the budget. A call that needs more than a whole minute's budget is sent once
nothing else was sent for a minute.
"""

from __future__ import annotations

import json

from evervec.stores.base import Store
from evervec.stores.values import Note

_ATTEMPTS = 100
_MINUTE = 60.0
_JUST = 0.001
_LATE = 1.0

Entry = tuple[float, int, int]
"""the latest time within a second, and the requests and tokens that were sent in that second"""


class Budget:
    """The budget of one provider."""

    def __init__(
        self, store: Store, name: str, requests_per_minute: int, tokens_per_minute: int
    ) -> None:
        self._store = store
        self._note = f"budget {name}"
        self._limits = (requests_per_minute, tokens_per_minute)

    @property
    def set(self) -> bool:
        return any(self._limits)

    def take(self, tokens: int) -> float:
        """Take one request and its tokens from the budget; returns 0, or the seconds to wait before
        asking again."""
        for _ in range(_ATTEMPTS):
            note, now, entries = self._read()
            wait = max(
                self._wait(entries, now, which, wanted) for which, wanted in ((1, 1), (2, tokens))
            )
            if wait > 0:
                return wait
            if self._put(note, now, entries, 1, tokens):
                # the call begins now, later than it was recorded
                if self._store.now() - now > _LATE:
                    self.add(1, tokens)
                return 0.0
        return 1.0

    def add(self, requests: int, tokens: int) -> None:
        """Record requests that were sent without asking, so that the next calls wait for them."""
        if not self.set or requests + tokens <= 0:
            return
        for _ in range(_ATTEMPTS):
            note, now, entries = self._read()
            if self._put(note, now, entries, requests, tokens):
                return

    def _wait(self, entries: list[Entry], now: float, which: int, wanted: int) -> float:
        """Seconds until enough of the last minute's entries are older than a minute."""
        limit = self._limits[which - 1]
        too_much = sum(entry[which] for entry in entries) + wanted - limit
        if not limit or not entries or too_much <= 0:
            return 0.0
        for entry in entries:
            too_much -= int(entry[which])
            if too_much <= 0:
                return entry[0] + _MINUTE - now + _JUST
        return entries[-1][0] + _MINUTE - now + _JUST

    def _read(self) -> tuple[Note | None, float, list[Entry]]:
        note, now = self._store.shared.note(self._note), self._store.now()
        entries = [tuple(entry) for entry in json.loads(note.value)] if note else []
        return note, now, [e for e in entries if e[0] >= now - _MINUTE]

    def _put(
        self, note: Note | None, now: float, entries: list[Entry], requests: int, tokens: int
    ) -> bool:
        if entries and int(entries[-1][0]) == int(now):
            _, before_requests, before_tokens = entries.pop()
            requests, tokens = requests + before_requests, tokens + before_tokens
        value = json.dumps([*entries, (now, requests, tokens)])
        return self._store.shared.put_note(self._note, value, note.revision if note else None)
