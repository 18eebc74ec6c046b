"""Keeps as many workers running as the backlog needs, wherever they run.

Work is safe without it: a worker that dies, on this machine or another, holds leases that expire.
So the supervisor only counts and replaces; it may die itself, and be started again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from evervec.errors import EvervecError, InvalidArgument
from evervec.runtime.backoff import backoff

log = logging.getLogger("evervec")

_SOON = 60.0
"""seconds; a worker that died sooner after its start is replaced after a pause"""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0


class Member(Protocol):
    """One worker of the fleet."""

    name: str

    def trouble(self) -> str | None:
        """Why it is of no more use; None while it works, or starts."""
        ...

    def stop(self) -> None:
        """Let it finish the jobs that it holds, then end; returns at once."""
        ...

    def kill(self) -> None:
        """End it now."""
        ...

    def ended(self) -> bool:
        """Whether it has ended, after `stop`."""
        ...


class Launcher(Protocol):
    """Starts workers."""

    def start(self, number: int) -> Member: ...


@dataclass(frozen=True)
class Lag:
    """The backlog of a store."""

    pending: int
    oldest: float | None
    """seconds for which the oldest due job has waited; None: no job is due"""


@dataclass(frozen=True)
class Size:
    """How many workers there should be."""

    least: int
    most: int
    lag: float = 30.0
    """seconds that due work may wait before a worker is added"""
    calm: float = 300.0
    """seconds without a backlog after which one is removed; also the pause between two"""

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most:
            raise InvalidArgument(
                f"a fleet needs at least one worker, and no more at least ({self.least}) than at "
                f"most ({self.most})"
            )


@dataclass
class Fleet:
    """The workers of one store."""

    launcher: Launcher
    lag: Callable[[], Lag]
    size: Size
    now: Callable[[], float] = time.monotonic
    members: list[Member] = field(default_factory=list)
    replaced: int = 0

    def __post_init__(self) -> None:
        self.wanted = self.size.least
        self._started: dict[str, float] = {}
        self._leaving: list[Member] = []
        self._number = 0
        self._early_deaths = 0
        self._start_at = 0.0
        self._busy_at = self._changed_at = self.now()

    def step(self) -> None:
        """Replace the dead, and follow the lag."""
        self._bury()
        self._follow(self.lag)
        while len(self.members) > self.wanted:
            leaving = self.members.pop()
            log.info("the fleet shrinks to %d: %s stops", len(self.members), leaving.name)
            leaving.stop()
            self._leaving.append(leaving)
        while len(self.members) < self.wanted and self.now() >= self._start_at:
            self._number += 1
            member = self.launcher.start(self._number)
            self._started[member.name] = self.now()
            self.members.append(member)
        self._leaving = [member for member in self._leaving if not member.ended()]

    def _bury(self) -> None:
        for member in list(self.members):
            trouble = member.trouble()
            if trouble is None:
                if self.now() - self._started[member.name] >= _SOON:
                    self._early_deaths = 0
                continue
            log.warning("%s is replaced: %s", member.name, trouble)
            member.kill()
            self.members.remove(member)
            self.replaced += 1
            if self.now() - self._started.pop(member.name) < _SOON:
                # the first is replaced at once: a machine died. Then it may be the program.
                if self._early_deaths:
                    pause = backoff(self._early_deaths, _FIRST_PAUSE, _LONGEST_PAUSE)
                    self._start_at = self.now() + pause
                self._early_deaths += 1

    def _follow(self, lag: Callable[[], Lag]) -> None:
        """One more when due work waits too long; one fewer after a time without a backlog."""
        try:
            found = lag()
        except EvervecError as error:  # the workers wait for the store too
            log.warning("the lag is unknown: %s", error)
            return
        now = self.now()
        if found.pending:
            self._busy_at = now
        behind = found.oldest is not None and found.oldest > self.size.lag
        if behind and self.wanted < self.size.most and now - self._changed_at >= self.size.lag:
            self.wanted, self._changed_at = self.wanted + 1, now
        calm = now - max(self._busy_at, self._changed_at) >= self.size.calm
        if calm and self.wanted > self.size.least:
            self.wanted, self._changed_at = self.wanted - 1, now

    def run(self, stopping: threading.Event, every: float = 1.0) -> None:
        """Step until `stopping`."""
        while not stopping.is_set():
            self.step()
            stopping.wait(every)

    def stop(self, seconds: float, pause: Callable[[float], object] = time.sleep) -> None:
        """Let all workers finish what they hold, and kill those that take longer."""
        leaving = self.members + self._leaving
        self.members, self._leaving = [], []
        for member in leaving:
            member.stop()
        deadline = self.now() + seconds
        while (leaving := [m for m in leaving if not m.ended()]) and self.now() < deadline:
            pause(0.1)
        for member in leaving:
            log.warning("%s did not stop within %g s: its leases expire", member.name, seconds)
            member.kill()
