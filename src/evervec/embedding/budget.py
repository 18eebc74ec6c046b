"""Requests and tokens that all workers of a store may send to a provider in a minute.

What was sent in the last minute stands in a note of the store, second by second, so that no
minute, wherever it begins, sees more than its budget. A call that needs more than a whole
minute's goes when nothing else went for that long.
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
"""the latest moment of a second, and the requests and tokens that were sent in it"""


class Budget:
    """What is left of the minute, for one provider."""

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
        """Take one request and its tokens: 0, or the seconds after which to ask again."""
        for _ in range(_ATTEMPTS):
            note, now, entries = self._read()
            wait = max(
                self._wait(entries, now, which, wanted) for which, wanted in ((1, 1), (2, tokens))
            )
            if wait > 0:
                return wait
            if self._put(note, now, entries, 1, tokens):
                if self._store.now() - now > _LATE:  # the call begins now, not then
                    self.add(1, tokens)
                return 0.0
        return 1.0

    def add(self, requests: int, tokens: int) -> None:
        """Count what was sent without asking: the next calls wait for it."""
        if not self.set or requests + tokens <= 0:
            return
        for _ in range(_ATTEMPTS):
            note, now, entries = self._read()
            if self._put(note, now, entries, requests, tokens):
                return

    def _wait(self, entries: list[Entry], now: float, which: int, wanted: int) -> float:
        """Seconds until enough of the last minute's is a minute ago."""
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
        note, now = self._store.note(self._note), self._store.now()
        entries = [tuple(entry) for entry in json.loads(note.value)] if note else []
        return note, now, [e for e in entries if e[0] >= now - _MINUTE]

    def _put(
        self, note: Note | None, now: float, entries: list[Entry], requests: int, tokens: int
    ) -> bool:
        if entries and int(entries[-1][0]) == int(now):
            _, before_requests, before_tokens = entries.pop()
            requests, tokens = requests + before_requests, tokens + before_tokens
        value = json.dumps([*entries, (now, requests, tokens)])
        return self._store.put_note(self._note, value, note.revision if note else None)
