"""Allows one writer at a time to an index that supports no more, across threads and processes.

Threads of a process wait at a lock in memory, processes at a lock in the store. The holder renews
its lock while it works. A holder that died on this machine is replaced at once, and one that died
elsewhere when its lock expires. The lock only avoids conflicts: the index itself must refuse the
writes of a holder that was suspended and lost the lock. Callers can limit their wait: see
`patience` in `indexes.base`.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from evervec.errors import IndexBusy, StoreError
from evervec.indexes.base import patience_left
from evervec.indexes.holder import Holder, described
from evervec.runtime.threads import repeating
from evervec.stores.base import Store

log = logging.getLogger("evervec")

_FIRST_LOOK, _LAST_LOOK = 0.02, 0.2
"""seconds between two checks of a lock that another process holds"""
_NOTICEABLE, _AGAIN = 1.0, 10.0
"""seconds of waiting before the first log line, and between two lines"""
_LONGEST_HOLD = 3600.0
"""seconds for which a holder renews its lock: after that it is assumed to hang"""


class ThreadLock:
    """A writer lock among the threads of one process."""

    def __init__(self, place: str, longest: float = _LONGEST_HOLD) -> None:
        self._place = place
        self._longest = longest
        self._thread_lock = threading.RLock()
        self._log = _WaitLog(place)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock inside the block. Raises `IndexBusy` when the caller's patience, or a long time, is
        over."""
        deadline = time.monotonic() + patience_left(self._longest)
        self._enter(deadline)
        try:
            yield
        finally:
            self._thread_lock.release()

    def _enter(self, deadline: float) -> None:
        holder = "another thread of this process"
        while True:
            left = deadline - time.monotonic()
            if self._thread_lock.acquire(timeout=max(0.0, min(left, _LAST_LOOK))):
                self._log.got_it()
                return
            self._log.waits(holder)
            if left <= 0:
                raise IndexBusy(f"{holder} is writing to {self._place}: try again")


class WriterLock(ThreadLock):
    """A writer lock among all processes of a store, for one index object."""

    def __init__(self, store: Store, place: str, seconds: float) -> None:
        super().__init__(place, seconds + 5)
        self._store = store
        self._name = f"writer {place}"
        self._seconds = seconds
        self._object = secrets.token_hex(8)
        self._token: str | None = None
        self._log_others = _WaitLog(place)

    @contextmanager
    def hold(self) -> Iterator[None]:
        deadline = time.monotonic() + patience_left(self._longest)
        self._enter(deadline)
        try:
            self._take(deadline)
            try:
                with repeating(
                    "evervec-writer-lock", self._seconds / 3, self._renew_quietly, _LONGEST_HOLD
                ):
                    yield
            finally:
                with suppress(StoreError):  # the lock expires anyway
                    self._store.shared.unlock(self._name, self._token or "")
        finally:
            self._thread_lock.release()

    def _take(self, deadline: float) -> None:
        pause, look = threading.Event(), _FIRST_LOOK
        while not self._renew():
            other = self._store.shared.lock_holder(self._name)
            if other is None:
                continue  # it was released between the two calls
            holder = Holder.parse(other.holder)
            if holder is not None and holder.is_dead():
                # by its token: if another process was faster, nothing happens
                self._store.shared.unlock(self._name, other.token)
                log.warning("%s died while writing to %s", described(other.holder), self._place)
                continue
            self._log_others.waits(described(other.holder))
            if time.monotonic() >= deadline:
                raise IndexBusy(f"{described(other.holder)} is writing to {self._place}: try again")
            pause.wait(look)
            look = min(look * 1.5, _LAST_LOOK)
        self._log_others.got_it()

    def _renew(self) -> bool:
        holder = str(Holder.here(self._object))
        self._token = self._store.shared.lock(self._name, holder, self._seconds)
        return self._token is not None

    def _renew_quietly(self) -> None:
        """If the lock is lost, the index refuses the commit."""
        with suppress(StoreError):
            self._renew()


class _WaitLog:
    """Logs a noticeable wait and its end; a wait may consist of several tries."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._since = self._last = self._next = 0.0
        self._told = False

    def waits(self, holder: str) -> None:
        now = time.monotonic()
        if now - self._last > 2 * _NOTICEABLE:  # the previous wait was given up
            self._since, self._next, self._told = now, now + _NOTICEABLE, False
        self._last = now
        if now >= self._next:
            waited = now - self._since
            log.warning(
                "waiting for %s to finish writing to %s, for %.0f s so far",
                holder, self._place, waited, extra={"waited": round(waited, 1)},
            )  # fmt: skip
            self._next, self._told = now + _AGAIN, True

    def got_it(self) -> None:
        if self._told and time.monotonic() - self._last <= 2 * _NOTICEABLE:
            log.info("writing to %s after %.1f s", self._place, time.monotonic() - self._since)
        self._last, self._told = 0.0, False
