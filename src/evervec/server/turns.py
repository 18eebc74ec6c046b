"""Threads for what blocks, shared fairly between tenants.

A tenant that is alone may use half of the threads. While others ask too it may use an eighth: the
threads of one process take turns in the interpreter, so each of one tenant's threads delays
everybody's answers. Of the threads there is always one left for the next tenant, however slow the
work of those before is. Among those who wait, the tenant whose work has taken the least time goes
first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable

log = logging.getLogger("evervec.server")

_OF_LATE = 1.0
_PARTS = 8


class Turn:
    """A piece of work that waits for a thread, or has one."""

    __slots__ = ("began", "tenant", "work")

    def __init__(self, tenant: str, work: Callable[[], object]) -> None:
        self.tenant = tenant
        self.work = work
        self.began = False


class Turns:
    """So many daemon threads, started as they are needed. One that never comes back cannot keep
    the process from ending."""

    def __init__(
        self,
        threads: int,
        most: int = 0,
        name: str = "evervec-request",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most`: threads that one tenant may use; 0: as the module says."""
        self.threads = threads
        self._most = most or threads
        self._name = name
        self._clock = clock
        self._waiting: dict[str, deque[Turn]] = {}
        self._running: Counter[str] = Counter()
        self._used: dict[str, float] = {}
        """seconds that tenants have used; those who were away begin with what others have"""
        self._floor = 0.0
        self._asked: dict[str, float] = {}
        """when tenants asked last"""
        self._idle = 0
        self._started = 0
        self._closed = False
        self._changed = threading.Condition()

    def submit(self, tenant: str, work: Callable[[], object]) -> Turn:
        """Have work done when a thread is free. It must not raise."""
        turn = Turn(tenant, work)
        with self._changed:
            self._asked.pop(tenant, None)
            self._asked[tenant] = self._clock()  # the latest is the last
            if tenant not in self._waiting:
                self._waiting[tenant] = deque()
                if not self._running[tenant]:
                    self._used[tenant] = max(self._used.get(tenant, 0.0), self._floor)
            self._waiting[tenant].append(turn)
            self._summon()
        return turn

    def withdraw(self, turn: Turn) -> bool:
        """Take back work that has not begun; False: it has."""
        with self._changed:
            if turn.began:
                return False
            turn.began = True  # whoever comes to it leaves it out
            queue = self._waiting.get(turn.tenant)
            if queue is not None:
                queue.remove(turn)
                if not queue:
                    self._forget(turn.tenant)
            return True

    @property
    def running(self) -> int:
        return sum(self._running.values())

    @property
    def waiting(self) -> int:
        with self._changed:
            return sum(map(len, self._waiting.values()))

    def close(self) -> None:
        """Begin nothing more, and leave what is under way to itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _summon(self) -> None:
        """Have a thread look for work; it summons the next one."""
        if self._idle:
            self._changed.notify()
        elif self._started < self.threads:
            self._start()

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._run, name=f"{self._name}-{self._started}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:  # the machine has none to spare: those there are do it
            if not self._started:
                raise
            log.warning("no thread can be started for requests: %d do them", self._started)
            return
        self._started += 1

    def _run(self) -> None:
        while (turn := self._take()) is not None:
            began = self._clock()
            try:
                turn.work()
            except BaseException:
                log.exception("a thread for requests met an error that no request was told of")
            self._end(turn.tenant, self._clock() - began)

    def _take(self) -> Turn | None:
        """The next work that may begin; None: there will be no more."""
        with self._changed:
            self._idle += 1
            while (tenant := self._next()) is None:
                if self._closed:
                    return None
                self._changed.wait()
            self._idle -= 1
            queue = self._waiting[tenant]
            turn = queue.popleft()
            turn.began = True
            self._running[tenant] += 1
            self._floor = max(self._floor, self._used[tenant])
            if not queue:
                self._forget(tenant)
            if self._next() is not None:
                self._summon()
            return turn

    def _next(self) -> str | None:
        """The tenant to serve: of those who may have a thread, the one that used least."""
        if self._closed or not self._waiting:
            return None
        free = self.threads - self.running
        most = min(self._most, max(1, min(free, self._share())))
        may = [tenant for tenant in self._waiting if self._running[tenant] < most]
        return min(may, key=self._used.__getitem__) if may else None

    def _share(self) -> int:
        """The threads that a tenant may use, by whether others asked of late."""
        since = self._clock() - _OF_LATE
        while self._asked and next(iter(self._asked.values())) < since:
            del self._asked[next(iter(self._asked))]
        return self.threads if len(self._asked) <= 1 else max(1, self.threads // _PARTS)

    def _end(self, tenant: str, seconds: float) -> None:
        with self._changed:
            self._used[tenant] += seconds
            self._running[tenant] -= 1
            if tenant not in self._waiting:
                self._forget(tenant)

    def _forget(self, tenant: str) -> None:
        """Keep nothing of a tenant that neither waits nor runs."""
        if not self._waiting.get(tenant):
            self._waiting.pop(tenant, None)
            if not self._running[tenant]:
                del self._running[tenant]
                self._used.pop(tenant, None)
