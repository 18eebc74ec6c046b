"""Threads for blocking calls, shared fairly between tenants.

A single active tenant may use half of the threads. While other tenants are active it may use an
eighth: the threads of a process share the interpreter, so each thread of one tenant delays all
others. One thread always remains for the next tenant, however slow the running calls are. Among
waiting tenants, the one whose calls have taken the least time goes first. A tenant of more weight may
use more threads, up to a half of them, and its time counts less.

Calls that compute in this process hand the interpreter over to each other, which costs more the
more of them there are. So only a few begin at once, twice as many while several tenants are active, so
that the calls of one do not take all places. A call that takes long, because it waits for a provider or
for the disk, soon no longer holds others back.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

from evervec.runtime.threads import start

log = logging.getLogger("evervec.server")

_RECENT_SECONDS = 1.0
_SHARE_PARTS = 8
_BRIEF_SECONDS = 0.02
"""after which a running call does not hold others back"""


class _Call:
    """A call that waits for a thread, or has one."""

    __slots__ = ("began", "tenant", "work")

    def __init__(self, tenant: str, work: Callable[[], object]) -> None:
        self.tenant = tenant
        self.work = work
        self.began = False


class FairPool:
    """A pool of daemon threads, started as needed. A thread that hangs does not prevent the process
    from exiting."""

    def __init__(
        self,
        threads: int,
        most: int = 0,
        name: str = "evervec-request",
        clock: Callable[[], float] = time.monotonic,
        at_once: int = 0,
        weight_of: Callable[[str], int] = lambda _: 1,
    ) -> None:
        """`most`: threads that one tenant may use; 0: as described above. `at_once`: calls of one
        tenant that began a moment ago and still run; 0: as many as there are threads. `weight_of`:
        must not block."""
        self.threads = threads
        self._most = most or threads
        self._name = name
        self._clock = clock
        self._weight_of = weight_of
        self._waiting: dict[str, deque[_Call]] = {}
        self._running: Counter[str] = Counter()
        self._used: dict[str, float] = {}
        """seconds used by tenant, divided by its weight; a tenant that returns starts at the
        others' level"""
        self._floor = 0.0
        self._asked: dict[str, float] = {}
        """time of the last call by tenant"""
        self._at_once = at_once or threads
        self._begun: deque[tuple[float, _Call]] = deque()
        """the running calls that began a moment ago, the oldest first"""
        self._is_watched = False
        """whether a thread waits until one of these is no longer brief"""
        self._idle = 0
        self._started = 0
        self._closed = False
        self._changed = threading.Condition()

    def submit(self, tenant: str, work: Callable[[], object]) -> _Call:
        """Run `work` when a thread is free. It must not raise."""
        call = _Call(tenant, work)
        with self._changed:
            self._asked.pop(tenant, None)
            self._asked[tenant] = self._clock()  # most recent last
            if tenant not in self._waiting:
                self._waiting[tenant] = deque()
                if not self._running[tenant]:
                    self._used[tenant] = max(self._used.get(tenant, 0.0), self._floor)
            self._waiting[tenant].append(call)
            self._wake()
        return call

    def withdraw(self, call: _Call) -> bool:
        """Withdraw a call that has not begun; False: it has begun."""
        with self._changed:
            if call.began:
                return False
            call.began = True  # so that no thread runs it
            queue = self._waiting.get(call.tenant)
            if queue is not None:
                queue.remove(call)
                if not queue:
                    self._forget(call.tenant)
            return True

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Start no more calls; running ones are not awaited."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wake(self) -> None:
        """Wake or start a thread, if it has something to begin or to watch. It does the same for
        the next one."""
        if self._next() is None and (self._is_watched or not self._are_held_back()):
            return
        if self._idle:
            self._changed.notify()
        elif self._started < self.threads:
            self._start()

    def _start(self) -> None:
        try:
            start(f"{self._name}-{self._started}", self._run)
        except RuntimeError:  # out of threads: use those that exist
            if not self._started:
                raise
            log.warning("cannot start another thread for requests: %d are running", self._started)
            return
        self._started += 1

    def _run(self) -> None:
        while (call := self._take()) is not None:
            began = self._clock()
            try:
                call.work()
            except BaseException:
                log.exception("unexpected error in a request thread")
            self._end(call, self._clock() - began)

    def _take(self) -> _Call | None:
        """The next call that may begin; None: the pool is closed."""
        with self._changed:
            self._idle += 1
            while (tenant := self._next()) is None:
                if self._closed:
                    return None
                self._wait()
            self._idle -= 1
            queue = self._waiting[tenant]
            call = queue.popleft()
            call.began = True
            self._running[tenant] += 1
            self._begun.append((self._clock(), call))
            self._floor = max(self._floor, self._used[tenant])
            if not queue:
                self._forget(tenant)
            self._wake()
            return call

    def _wait(self) -> None:
        """Wait until a call may begin. One thread watches the calls that hold others back."""
        if self._is_watched or not self._are_held_back():
            self._changed.wait()
            return
        self._is_watched = True
        self._changed.wait(self._begun[0][0] + _BRIEF_SECONDS - self._clock())
        self._is_watched = False

    def _next(self) -> str | None:
        """The next tenant: of those below their share, the one that used the least time."""
        if self._closed or not self._waiting or self._are_held_back():
            return None
        free = self.threads - self.running
        most, share = min(self._most, max(1, free)), self._share()
        may = [
            tenant
            for tenant in self._waiting
            if self._running[tenant] < min(most, self._weighted(share, tenant))
        ]
        return min(may, key=self._used.__getitem__) if may else None

    def _weighted(self, share: int, tenant: str) -> int:
        return max(share, min(share * self._weight_of(tenant), self.threads // 2))

    def _share(self) -> int:
        """The threads that a tenant of weight 1 may use, depending on whether others were active
        recently."""
        return max(1, self.threads // _SHARE_PARTS) if self._are_several() else self.threads

    def _are_several(self) -> bool:
        """Whether several tenants were active recently."""
        since = self._clock() - _RECENT_SECONDS
        while self._asked and next(iter(self._asked.values())) < since:
            del self._asked[next(iter(self._asked))]
        return len(self._asked) > 1

    def _are_held_back(self) -> bool:
        """Whether calls wait because enough others began a moment ago."""
        since = self._clock() - _BRIEF_SECONDS
        while self._begun and self._begun[0][0] <= since:
            self._begun.popleft()
        most = self._at_once * 2 if self._are_several() else self._at_once
        return bool(self._waiting) and len(self._begun) >= most

    def _end(self, call: _Call, seconds: float) -> None:
        tenant = call.tenant
        with self._changed:
            self._begun = deque(entry for entry in self._begun if entry[1] is not call)
            self._used[tenant] += seconds / self._weight_of(tenant)
            self._running[tenant] -= 1
            if tenant not in self._waiting:
                self._forget(tenant)

    def _forget(self, tenant: str) -> None:
        """Drop the state of a tenant without waiting or running calls."""
        if not self._waiting.get(tenant):
            self._waiting.pop(tenant, None)
            if not self._running[tenant]:
                del self._running[tenant]
                self._used.pop(tenant, None)
