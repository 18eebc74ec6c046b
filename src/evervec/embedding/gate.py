"""The gate of a provider: shut for all workers of a store during an outage or a rate limit.

The worker that meets the error shuts the gate, with a note in the store. When the pause is over,
one worker probes the provider with a known good text. If the probe succeeds the gate opens;
otherwise it stays shut for longer. Workers resume at slightly different times, not all at once, and
each starts with one call at a time.
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from evervec.errors import EmbedderError, ProviderUnavailable, RateLimited, StoreError
from evervec.model.reports import Gate
from evervec.runtime.backoff import backoff
from evervec.runtime.threads import repeating
from evervec.settings import Settings
from evervec.stores import notes
from evervec.stores.base import Store

log = logging.getLogger("evervec")

OUTAGES = (ProviderUnavailable, RateLimited)
"""errors of the provider that no text caused"""
_LONGEST_PAUSE = 60.0
_LONGEST_SPREAD = 10.0
_PROVIDER_LIMIT_SECONDS = 60.0
_HELD = 5.0
"""seconds for which the probing worker locks out others, unless it renews the lock; if it is
killed, another worker can probe after this time"""


class Gatekeeper:
    """One process's view of the gate of one provider."""

    def __init__(
        self, store: Store, name: str, settings: Settings, on_shut: Callable[[], object]
    ) -> None:
        self._store = store
        self._on_shut = on_shut
        self._name = name
        self._note = notes.GATE.of(name)
        self._settings = settings
        self._seen = (0, 0.0)  # revision of the note, and when this worker may resume
        self._spread = 0.0  # seconds that this worker lets pass when the gate opens
        self._known: Gate | None = None

    def gate(self) -> Gate | None:
        """The shut gate with its reason; None when the gate is open."""
        gate, revision = self._note.read(self._store.shared)
        self._known = gate
        if gate is None or revision is None:
            if self._seen[0]:  # it was opened, perhaps before the pause was over
                self._seen = (0, min(self._seen[1], self._store.now() + self._spread))
            return None
        if self._seen[0] != revision:
            self._on_shut()
            pause = max(0.0, gate.until - self._store.now())
            most = min(self._settings.backoff_jitter * pause, _LONGEST_SPREAD)
            self._spread = self._settings.rng.random() * most
            self._seen = (revision, gate.until + self._spread)
        return gate

    def known(self) -> Gate | None:
        """The gate as last read, if its pause is not over. Does not read the store."""
        gate = self._known
        return gate if gate is not None and gate.until > self._store.now() else None

    @property
    def waits(self) -> float:
        """Seconds until this worker may resume."""
        return max(0.0, self._seen[1] - self._store.now())

    def try_open(self, probe: Callable[[], None]) -> bool:
        """Returns whether the gate is open. When its pause is over, one worker of all probes with a
        known good text, and opens it or shuts it again."""
        gate = self.gate()
        if self.waits:
            return False
        return gate is None or self.probe(probe) is None

    def probe(self, probe: Callable[[], None]) -> EmbedderError | None:
        """Probe with a known good text, whether or not the pause is over, and open the gate or shut
        it again. Returns the error that keeps it shut."""
        with self._alone() as alone:
            if not alone:
                return ProviderUnavailable("another process is probing it now")
            try:
                probe()
                self.open()  # before the lock is released, so that no other worker probes
            except OUTAGES as error:
                self.shut(error, again=True)
                return error
        return None

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether this is the only probe at the moment. The lock is renewed while the block runs,
        for as long as the provider takes to answer."""
        lock, holder = f"probe {self._name}", secrets.token_hex(8)  # a new holder for each probe
        token = self._store.shared.lock(lock, holder, _HELD)
        if token is None:
            yield False
            return
        tokens = [token]

        def renew() -> None:
            with suppress(StoreError):
                if renewed := self._store.shared.lock(lock, holder, _HELD):
                    tokens.append(renewed)

        try:
            with repeating("evervec-probe-lock", _HELD / 3, renew):
                yield True
        finally:
            with suppress(StoreError):  # the lock expires anyway
                self._store.shared.unlock(lock, tokens[-1])

    def shut(self, error: EmbedderError, *, again: bool = False) -> None:
        """Keep all workers away for as long as the provider asks; otherwise for a pause that
        doubles with each failed probe (`again`)."""
        while True:
            old, revision = self._note.read(self._store.shared)
            new = self._shut(old, error, again)
            if self._note.swap(self._store.shared, new, revision):
                break
        self._known = new
        self._on_shut()
        if old is None or again:
            seconds = new.until - self._store.now()
            log.warning(
                "embedding paused for %.1f s: %s", seconds, new.reason, extra={"seconds": seconds}
            )

    def _shut(self, old: Gate | None, error: EmbedderError, again: bool) -> Gate:
        now = self._store.now()
        tries = (old.tries + again) if old else 1
        pause = backoff(tries, self._settings.backoff_seconds, _LONGEST_PAUSE)
        if isinstance(error, RateLimited) and error.retry_after is not None:
            pause = error.retry_after
        until = now + pause
        if old and not again:  # one of several calls that met the same error
            until = max(until, old.until)
        state = "limited" if isinstance(error, RateLimited) else "outage"
        return Gate(state, str(error), old.since if old else now, until, tries)

    def open(self) -> None:
        _, revision = self._note.read(self._store.shared)
        if revision is not None and self._note.swap(self._store.shared, None, revision):
            log.warning("%s is available again: embedding resumes", self._name)
        self._known = None
        self._seen = (0, 0.0)
        self._store.wake()


def error_of(gate: Gate, now: float) -> EmbedderError:
    """The error that a call at a shut gate raises."""
    if gate.state == "limited":
        return RateLimited(max(0.0, gate.until - now), gate.reason)
    return ProviderUnavailable(gate.reason)


@dataclass(slots=True)
class _Stretch:
    """The time from one pause to the next: the limit on concurrent calls, their peak, and how many
    were refused as too many at once."""

    most: float
    peak: int = 0
    refused: int = 0


class Ramp:
    """Limits the concurrent calls of this process: after a pause one, then two, then four.

    If a provider refuses calls without naming a time, it has too many calls at once rather than too
    many per minute. For a while, calls are limited to the number that it did not refuse.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._stretch = _Stretch(math.inf)
        # how many calls the provider serves at once, and until when that holds
        self._provider_limit = math.inf
        self._provider_limit_until = 0.0
        self._under_way = 0
        self._free = threading.Condition()

    def restart(self) -> None:
        with self._free:
            self._stretch = _Stretch(1)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Run one call when the limit allows it. Success raises the limit, unless the call began
        before the last pause: then it says nothing about the provider now."""
        with self._free:
            self._free.wait_for(self._has_room)
            self._under_way += 1
            stretch = self._stretch
            stretch.peak = max(stretch.peak, self._under_way)
        widens = False
        try:
            yield
            widens = True
        except RateLimited as error:
            if error.retry_after is None:  # an error from a shut gate does have a time
                self._refused(stretch)
            raise
        finally:
            with self._free:
                self._under_way -= 1
                if widens:
                    stretch.most = stretch.most * 2 if stretch.most < 64 else math.inf
                self._free.notify_all()

    def _has_room(self) -> bool:
        return self._under_way < min(self._stretch.most, self._limit())

    def _limit(self) -> float:
        """How many calls the provider serves at once, as far as is known."""
        return self._provider_limit if self._clock() < self._provider_limit_until else math.inf

    def _refused(self, stretch: _Stretch) -> None:
        """Lower the limit by one. The peak includes the calls refused before, so the limit never
        falls below what the provider serves, in whatever order the calls reached it."""
        with self._free:
            stretch.refused += 1
            self._provider_limit = min(self._limit(), max(1, stretch.peak - stretch.refused))
            self._provider_limit_until = self._clock() + _PROVIDER_LIMIT_SECONDS
