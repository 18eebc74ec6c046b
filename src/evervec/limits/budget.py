"""Requests and tokens that all workers of a store may send to a provider in a minute.

A bucket in a note of the store fills at nine tenths of the minute's rate and holds one tenth
of it, so that no minute sees more than its whole. A call may take more than there is, once;
the next ones then wait until the debt is paid.
"""

from __future__ import annotations

import json

from evervec.stores.base import Store

_HELD = 0.1
_ATTEMPTS = 100


class Budget:
    """What is left of the minute, for one provider."""

    def __init__(
        self, store: Store, name: str, requests_per_minute: int, tokens_per_minute: int
    ) -> None:
        self._store = store
        self._note = f"budget {name}"
        self._limits = {"requests": requests_per_minute, "tokens": tokens_per_minute}

    @property
    def set(self) -> bool:
        return any(self._limits.values())

    def take(self, tokens: int) -> float:
        """Take one request and its tokens: 0, or the seconds after which to ask again."""
        wanted = {"requests": 1, "tokens": tokens}
        for _ in range(_ATTEMPTS):
            note = self._store.note(self._note)
            now = self._store.now()
            there = json.loads(note.value) if note else {"at": now}
            waits, left = [0.0], {"at": now}
            for what, limit in self._limits.items():
                if not limit:
                    continue
                rate, most = (1 - _HELD) * limit / 60, max(1.0, _HELD * limit)
                passed = max(0.0, now - there["at"])
                held = min(most, there.get(what, most) + rate * passed)
                needed = min(wanted[what], most)
                if held < needed:
                    waits.append((needed - held) / rate)
                left[what] = held - wanted[what]
            if max(waits) > 0:
                return max(waits)
            if self._store.put_note(self._note, json.dumps(left), note.revision if note else None):
                return 0.0
        return 1.0
