"""Waits for changes to be in the index; one waiter of this process polls for all of them.

If every waiter polled at each sign of progress, many waiters would slow down the worker that they
wait for.
"""

from __future__ import annotations

import threading
import time

from evervec.model.jobs import Status, Ticket
from evervec.stores.base import Store


class _Waiter:
    def __init__(self, tenant: str, ticket: Ticket) -> None:
        self.asks = (tenant, ticket)
        self.end: Status | None = None
        self.called = threading.Event()
        """set when its change has ended, or when it becomes the one that polls"""


class TicketWaiter:
    """All waiters for changes of one store in this process."""

    def __init__(self, store: Store, poll_seconds: float | None) -> None:
        self._store = store
        self._poll = poll_seconds or store.poll_seconds
        self._lock = threading.Lock()
        self._waiters: list[_Waiter] = []
        self._poller: _Waiter | None = None
        """the waiter that polls for all"""

    def settled(self, tenant: str, ticket: Ticket, seconds: float) -> Status | None:
        """The final status of a change; None when it did not end in time."""
        deadline = time.monotonic() + seconds
        me = _Waiter(tenant, ticket)
        self._join(me)
        try:
            while True:
                looks_for_all = self._poller is me
                seen = self._store.wait(-1, 0)
                self._look(self._waiters if looks_for_all else [me])
                left = deadline - time.monotonic()
                if me.end is not None or left <= 0:
                    return me.end
                if looks_for_all:
                    self._store.wait(seen, min(left, self._poll))
                else:
                    me.called.wait(left)
        finally:
            self._leave(me)

    def _look(self, waiters: list[_Waiter]) -> None:
        ask = [waiter for waiter in waiters if waiter.end is None]
        ends = self._store.jobs.settled([waiter.asks for waiter in ask]) if ask else []
        for waiter, end in zip(ask, ends, strict=True):
            if end is not None:
                waiter.end = end
                waiter.called.set()

    def _join(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.append(waiter)
            self._poller = self._poller or waiter

    def _leave(self, waiter: _Waiter) -> None:
        with self._lock:
            self._waiters.remove(waiter)
            if self._poller is waiter:
                self._poller = self._waiters[0] if self._waiters else None
                if self._poller:
                    self._poller.called.set()
