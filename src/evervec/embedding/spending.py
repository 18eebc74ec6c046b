"""The cost of provider calls per tenant, kind, model and day, and the daily caps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from evervec.model.reports import Spend
from evervec.settings import Settings
from evervec.stores.base import Store


class Spending:
    """The cost of one model, in the store that all workers share."""

    def __init__(self, store: Store, model: str, settings: Settings) -> None:
        self._store = store
        self._model = model
        self._settings = settings

    def record(self, spent: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Add calls and tokens by tenant and kind."""
        day = self._today()
        self._store.shared.add_spend(
            [
                Spend(day, tenant, kind, self._model, calls, round(tokens), self.money(tokens))
                for (tenant, kind), (calls, tokens) in spent.items()
            ]
        )

    def money(self, tokens: float) -> float:
        return tokens * self._settings.price_per_million / 1e6

    def today(self, tenant: str | None) -> list[Spend]:
        return self._store.shared.spend(tenant, self._today())

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
        return datetime.fromtimestamp(self._store.now(), UTC).date().isoformat()
