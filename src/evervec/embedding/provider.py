"""An embedder as all workers of a store share it: its outages, limits, budget and cost.

It learns from its calls how much text the embedder embeds in a few seconds. A worker that is killed
loses the work in progress, so it takes only as much as it finishes soon: little on a slow machine,
up to the memory limit with a fast provider.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from evervec.embedders.base import (
    PROBE,
    Embedded,
    Embedder,
    ask_query,
    count_tokens,
    embed,
    is_remote,
    tells_cost,
)
from evervec.embedding.budget import Budget, Spending
from evervec.embedding.gate import OUTAGES, Gatekeeper, Ramp, error_of
from evervec.embedding.prepared import prepared
from evervec.embedding.query_costs import QueryCosts
from evervec.errors import (
    DeadlineExceeded,
    EmbedderError,
    InvalidInput,
    ProviderUnavailable,
    RateLimited,
    StoreError,
)
from evervec.model.deadlines import check, current, deadline, left
from evervec.model.reports import Gate
from evervec.queue.recorder import Recorder
from evervec.runtime.backoff import Breaker
from evervec.runtime.threads import submit
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.telemetry.counters import CALLS, TOKENS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

log = logging.getLogger("evervec")

SECONDS = 2.5
"""target duration of one call, at most"""
_FIRST, _MOST_AT_FIRST = 1 << 14, 1 << 16
_LONG_TEXT = 2000
"""characters: the first call may hold as many texts of this length as the provider accepts, up to
`_MOST_AT_FIRST`"""
_CHARACTERS = 125
"""Minimum per text in a full call: an eighth of an ordinary chunk. A smaller call would mostly
measure the provider's latency."""
_GROWTH = 4
_AT_FIRST = 3


class Pace:
    """The maximum characters of one call, adjusted after every call."""

    def __init__(self, max_batch: int) -> None:
        self._texts = max(1, max_batch)
        self._least = _CHARACTERS * self._texts
        usual = min(_LONG_TEXT * self._texts, _MOST_AT_FIRST)
        self.characters = max(_FIRST, usual, 2 * self._least)
        self.learnt = False

    @property
    def of_batch(self) -> int:
        """The characters of a batch: one call's worth, or several before anything is learnt, so
        that a short backlog is not cut into many small calls."""
        return self.characters if self.learnt else _AT_FIRST * self.characters

    def learn(self, texts: int, characters: int, seconds: float) -> None:
        """Adjust to the duration of a call. A small and fast call says nothing about larger
        ones."""
        small = characters < self.characters / 4 and texts < self._texts
        if small and seconds < SECONDS:
            return
        self.learnt = True
        fitting = characters * SECONDS / max(seconds, 0.001)
        bounded = min(max(fitting, self._least, self.characters / 2), _GROWTH * self.characters)
        self.characters = round(bounded)


class Provider:
    """Calls an embedder on behalf of a store's workers and searches, within all limits."""

    def __init__(
        self,
        embedder: Embedder,
        store: Store,
        settings: Settings,
        recorder: Recorder | None = None,
    ) -> None:
        """`recorder`: counts the cost of queries; None: nobody searches with this provider."""
        self.embedder = embedder
        self.in_flight = 0
        name = self.name = f"{embedder.name} {embedder.model}".strip()
        self._store = store
        self._ramp = Ramp()
        self._gates = Gatekeeper(store, name, settings, self._ramp.restart)
        self._is_remote = is_remote(embedder)
        self._budget = Budget(store, name, settings.requests_per_minute, settings.tokens_per_minute)
        self.pace = Pace(embedder.max_batch)
        self.spending = Spending(store, embedder.model or embedder.name, settings)
        self._query_costs = None
        if recorder is not None:
            self._query_costs = QueryCosts(store, self.spending, self._budget, recorder, settings)
        most = getattr(embedder, "max_calls", None)
        self._room: AbstractContextManager[object] = (
            threading.BoundedSemaphore(most) if most else nullcontext()
        )
        """for a model in this process: threads that wait here take nothing from those that embed"""
        self._counting = threading.Lock()
        self._logged_cap: str | None = None
        self._queries = Breaker(settings.backoff_seconds, settings.backoff_seconds)

    # for workers
    def try_resume(self, stopping: Callable[[], bool] = lambda: False) -> bool:
        """Probe the provider if its pause is over; returns whether jobs may be claimed for it now.
        A probe that hangs is abandoned when `stopping`."""
        if self._gates.gate() is None and not self._gates.waits:
            return not self._check_cap()
        trial = submit("evervec-probe", lambda: self._gates.try_open(self._probe))
        while not trial.done() and not stopping():
            wait([trial], 0.05)
        return trial.done() and trial.result() and not self._check_cap()

    def probe_now(self) -> EmbedderError | None:
        """Probe a paused provider before its pause is over; all workers resume if it answers.
        Returns the error that it meets."""
        return self._gates.probe(self._probe)

    def _check_cap(self) -> bool:
        """Log a daily cap that is reached, once; returns whether one is."""
        capped = self.spending.capped()
        if capped and capped != self._logged_cap:
            log.warning("embedding paused: %s", capped)
        self._logged_cap = capped
        return capped is not None

    @property
    def waits(self) -> float:
        """Seconds until it is worth checking again whether the provider is ready."""
        return self._gates.waits

    def embed(self, texts: Sequence[str], stopping: Callable[[], bool] = lambda: False) -> Embedded:
        """Embed texts as `embedders.base.embed` does, within all limits; waiting for the per-minute
        budget ends when `stopping`."""
        if self._budget.set:
            tokens = sum(count_tokens(self.embedder, text) for text in texts)
            while seconds := self._budget.take(tokens):
                if stopping():
                    raise RateLimited(seconds, "the budget of this minute is used up")
                time.sleep(min(seconds, 1.0))
        with self._ramp.call(), self._room:
            gate = self._gates.gate()
            if gate is not None:
                raise error_of(gate, self._store.now())
            self._count_in_flight(+1)
            began = time.monotonic()
            try:
                answer = embed(self.embedder, texts)
            except OUTAGES as error:
                self._count_call("record", error)
                self._share(self._gates.shut, error)
                self._share(self._budget.add, error.calls - 1, 0)
                raise
            finally:
                self._count_in_flight(-1)
        if answer.calls == 1:
            self.pace.learn(len(texts), sum(map(len, texts)), time.monotonic() - began)
        self._count_call("record", next(iter(answer.errors.values()), None))
        TOKENS.add(answer.tokens, self.name)
        if answer.calls > 1:  # the batch was bisected to find a bad text
            self._share(self._budget.add, answer.calls - 1, 0)
        if answer.pause:
            limited = RateLimited(answer.pause, "the provider's rate limit is reached")
            self._share(self._gates.shut, limited)
        return answer

    def _share(self, write: Callable[..., object], *args: Any) -> None:
        """Write a call's outcome to the store for other workers. A failure is only logged: the
        provider's answer is valid without it, and the next call writes its own outcome."""
        try:
            write(*args)
        except StoreError as error:
            log.warning("the state of %s was not saved for other workers: %s", self.name, error)

    def _probe(self) -> None:
        embed(self.embedder, [PROBE])

    def _count_call(self, purpose: str, error: Exception | None) -> None:
        """Count a call by its outcome."""
        outcome = "ok" if error is None else "error"
        if isinstance(error, OUTAGES):
            outcome = "limited" if isinstance(error, RateLimited) else "outage"
        CALLS.add(1, self.name, purpose, outcome)

    def _count_in_flight(self, change: int) -> None:
        with self._counting:
            self.in_flight += change

    def record(self, spent: Mapping[tuple[str, str], tuple[float, float]]) -> None:
        """Record calls and tokens by tenant and kind, to account for their cost."""
        if any(tokens for _, tokens in spent.values()):
            self.spending.record(spent)

    # for searches
    def embed_query(self, text: str, tenant: str) -> NDArray[np.float32]:
        """The vector of a tenant's query; a provider that is known to be unavailable is not called.
        Raises `QueryRefused` when a quota, cap or limit leaves nothing for it."""
        if (made := prepared(self, text)) is not None:
            return made
        gate = self._gates.gate() if self._is_remote else self._gates.known()
        if gate is not None and gate.until > self._store.now():
            raise error_of(gate, self._store.now())
        if self._queries.open:
            raise ProviderUnavailable(f"{self.embedder.name} did not respond to the last query")
        costs = self._query_costs if tells_cost(self.embedder) else None
        if costs is not None:
            costs.take(tenant, lambda: count_tokens(self.embedder, text))
        try:
            # leaves time to answer from full text
            with deadline(left() / 2) if current() else nullcontext():
                answer = ask_query(self.embedder, text)
        except DeadlineExceeded:  # says nothing about the provider
            check()
            raise ProviderUnavailable(
                f"{self.embedder.name} did not respond within half of the search's time"
            ) from None
        except Exception as error:
            self._count_call("query", error)
            if isinstance(error, OUTAGES):
                self._share(self._gates.shut, error)
            elif not isinstance(error, InvalidInput):
                self._queries.failed(str(error))
            raise
        self._count_call("query", None)
        TOKENS.add(answer.tokens, self.name)
        if costs is not None:
            costs.count(tenant, answer.tokens)
        return answer.vectors

    # reading
    def pauses_because(self) -> str | None:
        """Why embedding is paused; None when it is not."""
        gate = self.gate()
        return gate.reason if gate else self.spending.capped()

    def trouble(self) -> Exception | None:
        """The error that a probe with a known good text meets, whatever the gate's state; None when
        it succeeds."""
        try:
            self._probe()
        except OUTAGES as error:
            return error
        return None

    def gate(self) -> Gate | None:
        return self._gates.gate()
