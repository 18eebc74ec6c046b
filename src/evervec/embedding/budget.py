"""What all workers of a store may send to a provider: requests and tokens per minute, and cost per
day.

A note in the store records what was sent in the last minute, second by second, so that no window of
60 seconds exceeds the budget. A call that needs more than a whole minute's budget is sent once
nothing else was sent for a minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evervec.model.basics import day_of
from evervec.model.usage import OF_QUERIES, Spend
from evervec.settings import Settings
from evervec.stores import notes
from evervec.stores.base import Store
from evervec.stores.notes import SentInSecond

_ATTEMPTS = 100
_MINUTE = 60.0
_JUST = 0.001
_LATE = 1.0


class Budget:
    """The budget of one provider."""

    def __init__(
        self, store: Store, name: str, requests_per_minute: int, tokens_per_minute: int
    ) -> None:
        self._store = store
        self._note = notes.BUDGET.of(name)
        self._limits = (requests_per_minute, tokens_per_minute)

    @property
    def set(self) -> bool:
        return any(self._limits)

    def take(self, tokens: int) -> float:
        """Take one request and its tokens from the budget; returns 0, or the seconds to wait before
        asking again."""
        for _ in range(_ATTEMPTS):
            revision, now, entries = self._read()
            wait = max(
                self._wait(entries, now, which, wanted) for which, wanted in ((1, 1), (2, tokens))
            )
            if wait > 0:
                return wait
            if self._put(revision, now, entries, 1, tokens):
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
            revision, now, entries = self._read()
            if self._put(revision, now, entries, requests, tokens):
                return

    def _wait(self, entries: list[SentInSecond], now: float, which: int, wanted: int) -> float:
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

    def _read(self) -> tuple[int | None, float, list[SentInSecond]]:
        (entries, revision), now = self._note.read(self._store.shared), self._store.now()
        return revision, now, [e for e in entries or () if e[0] >= now - _MINUTE]

    def _put(
        self,
        revision: int | None,
        now: float,
        entries: list[SentInSecond],
        requests: int,
        tokens: int,
    ) -> bool:
        if entries and int(entries[-1][0]) == int(now):
            _, before_requests, before_tokens = entries.pop()
            requests, tokens = requests + before_requests, tokens + before_tokens
        return self._note.swap(self._store.shared, [*entries, (now, requests, tokens)], revision)


@dataclass(eq=False, repr=False)
class Spending:
    """The cost of one model, in the store that all workers share."""

    _store: Store
    model: str
    _settings: Settings

    def record(self, spent: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Add calls and tokens by tenant and kind."""
        day = self._today()
        self._store.shared.add_spend(
            [
                Spend(day, tenant, kind, self.model, calls, round(tokens), self.money(tokens))
                for (tenant, kind), (calls, tokens) in spent.items()
            ]
        )

    def money(self, tokens: float) -> float:
        return tokens * self._settings.price_per_million / 1e6

    def today(self, tenant: str | None) -> list[Spend]:
        return self._store.shared.spend(tenant, self._today())

    def of_queries(self) -> tuple[int, float]:
        """The tokens and the money that queries have cost today."""
        spent = [s for s in self.today(None) if s.kind == OF_QUERIES]
        return sum(s.tokens for s in spent), sum(s.money for s in spent)

    def capped(self) -> str | None:
        """The message of the daily cap that is reached; None when work may continue."""
        tokens, money = self._settings.daily_tokens, self._settings.daily_money
        if not tokens and not money:
            return None
        spent = self.today(None)
        if tokens and sum(s.tokens for s in spent) >= tokens:
            return f"today's {tokens:,} tokens are used up (daily_tokens); resumes at midnight UTC"
        if money and sum(s.money for s in spent) >= money:
            return f"today's budget of {money:g} is used up (daily_money); resumes at midnight UTC"
        return None

    def _today(self) -> str:
        return day_of(self._store.now())
