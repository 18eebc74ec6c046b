"""What the queries of this process may send to a provider, and what they cost.

Queries count like records: in the spend of their tenant, in the daily quotas and caps, and in the
limits per minute. A search cannot wait for any of these, so a query beyond them is refused, and the
search answers from text. Nothing here writes during a search: the sums are kept in memory, and a
thread adds them to the store every few seconds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from evervec.embedding.budget import Budget, Spending
from evervec.errors import RateLimited, StoreClosed, StoreError
from evervec.model.basics import day_of, next_day
from evervec.queue.recorder import Recorder
from evervec.runtime.threads import start
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.telemetry.counters import QUOTAS

log = logging.getLogger("evervec")

_HOLDS = 5.0
"""seconds for which what other processes spent is not read again"""
_MINUTE = 60.0
_OF_QUERIES, _OF_TENANT = 0.75, 0.5
"""the most of a minute's limits that queries take from records, and one tenant's queries while other
tenants search too"""
_TOLD_EVERY = 1.0
_MOST_KNOWN = 10_000
_EVERYONE = ""
"""no tenant has this name"""


class QueryRefused(RateLimited):
    """A tenant's quota, a daily cap or the limit per minute leaves nothing for this query. A search
    answers from text."""


@dataclass(slots=True)
class _Used:
    """What a tenant has used today, or the queries of all, as read at `at` and counted since."""

    day: str
    at: float
    tokens: float
    money: float

    def bounded(self, tokens: float | None, money: float | None) -> list[tuple[str, float, float]]:
        """The name of each bound that is set, what is used of it, and the bound."""
        pairs = (("tokens", self.tokens, tokens), ("money", self.money, money))
        return [(name, there, most) for name, there, most in pairs if most]


@dataclass(eq=False)
class QueryCosts:
    """The queries of this process to one provider; for any thread."""

    _store: Store
    _spending: Spending
    _budget: Budget
    _recorder: Recorder
    _settings: Settings
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _used: dict[str, _Used] = field(default_factory=dict, init=False)
    _minute: Minute = field(init=False)
    _logged: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._minute = Minute(
            self._settings.requests_per_minute, self._settings.tokens_per_minute,
            self._budget.add if not self._store.read_only else lambda *_: None,
        )  # fmt: skip

    def take(self, tenant: str, tokens: Callable[[], int]) -> None:
        """Admit a query; `tokens` estimates what it sends. Raises `QueryRefused` where a limit
        leaves nothing for it."""
        now = self._store.now()
        self._check_quota(tenant, now)
        self._check_cap(now)
        if self._budget.set and (wait := self._minute.take(now, tenant, tokens())):
            why = "queries have used their part of requests_per_minute or tokens_per_minute"
            raise self._refused(_EVERYONE, why, wait)

    def count(self, tenant: str, tokens: int) -> None:
        """Count a query that was embedded, with the tokens that the provider counted."""
        # as for records: what the provider does not count costs nothing
        if tokens <= 0 or self._store.read_only:
            return
        money = self._spending.money(tokens)
        self._recorder.asked(tenant, self._spending.model, tokens, money)
        with self._lock:
            for used in (self._used.get(tenant), self._used.get(_EVERYONE)):
                if used is not None:
                    used.tokens += tokens
                    used.money += money
        self._recorder.flush_beside()

    def _check_quota(self, tenant: str, now: float) -> None:
        limits = self._store.tenants.limits(tenant)
        if not (limits.tokens or limits.money):
            return
        used = self._used_today(tenant, now)
        for name, there, most in used.bounded(limits.tokens, limits.money):
            if there >= most:
                QUOTAS.add(1, name)
                why = f"tenant {tenant!r} has used its {most:,g} {name} of today (tenant_{name})"
                raise self._refused(tenant, why, next_day(now) - now)

    def _check_cap(self, now: float) -> None:
        """The daily caps pause records when records and queries together reach them. Queries go on
        until they alone do: searches by meaning outlast a day with many records."""
        settings = self._settings
        if not (settings.daily_tokens or settings.daily_money):
            return
        used = self._used_today(_EVERYONE, now)
        for name, there, most in used.bounded(settings.daily_tokens, settings.daily_money):
            if there >= most:
                why = f"queries alone have used the {most:,g} {name} of today (daily_{name})"
                raise self._refused(_EVERYONE, why, next_day(now) - now)

    def _used_today(self, tenant: str, now: float) -> _Used:
        day = day_of(now)
        with self._lock:
            used = self._used.get(tenant)
            if used is not None and used.day == day and 0 <= now - used.at < _HOLDS:
                return used
        # in this order: what is saved in between counts twice for some seconds, rather than never
        tokens, money = self._recorder.unsaved(day, tenant or None)
        saved: tuple[float, float]
        if tenant == _EVERYONE:
            saved = self._spending.of_queries()
        else:
            saved = self._store.tenants.spent_today(tenant)
        used = _Used(day, now, tokens + saved[0], money + saved[1])
        with self._lock:
            if len(self._used) >= _MOST_KNOWN:
                self._used.clear()
            self._used[tenant] = used
        return used

    def _refused(self, tenant: str, why: str, seconds: float) -> QueryRefused:
        """The error of a refusal; each reason is logged once, not for every search."""
        if self._logged.get(tenant) != why:
            if len(self._logged) >= _MOST_KNOWN:
                self._logged.clear()
            self._logged[tenant] = why
            log.warning("searches use text only: %s", why)
        return QueryRefused(seconds, why)


class Minute:
    """The queries of this process in the last minute, by tenant. They go before records, which can
    wait, but leave them a part of the limits."""

    def __init__(self, requests: int, tokens: int, share: Callable[[int, int], None]) -> None:
        self._limits = requests, tokens
        self._share = share
        """tells the workers of all processes; it writes to the store"""
        self._lock = threading.Lock()
        self._taken: deque[tuple[float, str, int]] = deque()
        """when, of which tenant, how many tokens"""
        self._by_tenant: dict[str, list[int]] = {}
        self._sum = [0, 0]
        """requests and tokens"""
        self._untold = [0, 0]
        self._is_telling = False

    def take(self, now: float, tenant: str, tokens: int) -> float:
        """Count a query; returns 0, or the seconds after which there is room again."""
        with self._lock:
            self._forget(now)
            if self._taken and not self._has_room(tenant, tokens):
                return max(0.001, self._taken[0][0] + _MINUTE - now)
            self._taken.append((now, tenant, tokens))
            own = self._by_tenant.setdefault(tenant, [0, 0])
            for counts in (own, self._sum, self._untold):
                counts[0] += 1
                counts[1] += tokens
            is_telling, self._is_telling = self._is_telling, True
        if not is_telling:
            try:
                start("evervec-query-budget", self._tell)
            except RuntimeError:  # out of threads: the next query tries again
                self._is_telling = False
        return 0.0

    def _tell(self) -> None:
        """Share what is not shared yet, at most once a second, until nothing is left."""
        while True:
            with self._lock:
                requests, tokens = self._untold
                self._untold = [0, 0]
                if not requests:
                    self._is_telling = False
                    return
            try:
                self._share(requests, tokens)
            except StoreClosed:
                return
            except StoreError as error:
                log.warning("queries are not counted in the limits per minute: %s", error)
            time.sleep(_TOLD_EVERY)

    def _has_room(self, tenant: str, tokens: int) -> bool:
        own = self._by_tenant.get(tenant)
        is_alone = len(self._by_tenant) == (own is not None)
        for which, more in enumerate((1, tokens)):
            limit = self._limits[which]
            if not limit:
                continue
            if self._sum[which] + more > _OF_QUERIES * limit:
                return False
            if not is_alone and own and own[which] + more > _OF_TENANT * limit:
                return False
        return True

    def _forget(self, now: float) -> None:
        """Forget queries of more than a minute ago, and those after a clock that was set back."""
        while self._taken and not now - _MINUTE < self._taken[0][0] <= now:
            _, tenant, tokens = self._taken.popleft()
            own = self._by_tenant[tenant]
            for counts in (own, self._sum):
                counts[0] -= 1
                counts[1] -= tokens
            if not own[0]:
                del self._by_tenant[tenant]
