"""Readiness checks of the service, part by part, for load balancers.

Each part is checked in a thread, one check at a time and at most twice per second, however many
requests ask. A part that does not respond in time counts as failed and blocks no request. Reasons
are short codes, because `/readyz` is public; details are in the log.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.model.deadlines import deadline
from evervec.runtime.threads import submit
from evervec.server.background import Background

log = logging.getLogger("evervec.server")

_SECONDS = 2.0
"""timeout of a check"""
_FRESH = 0.5
"""seconds for which a result is reused"""
_FULL = 1 << 20


class NotReady(Exception):
    """A part does not work; the argument is the reason code."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of a part."""

    ok: bool
    reason: str
    """`ok`, or why not: `timeout`, `unreachable`, `unwritable`, `full`, `low`, `stopped`,
    `failing`, `stuck`, `paused`, `none` or `error`"""
    detail: str


_GOOD = State(ok=True, reason="ok", detail="works")
_MEANING = {
    "timeout": f"did not respond within {_SECONDS:g} s",
    "error": "failed; see the log",
    "unwritable": "is read-only",
    "unreachable": "is unreachable",
    "full": "is full",
    "low": "is nearly full",
    "stopped": "has stopped",
    "failing": "fails repeatedly",
    "stuck": "has made no progress for minutes",
    "paused": "is paused",
    "none": "is not configured",
}
ESSENTIAL = frozenset({"store", "disk", "workers"})
"""without these, records cannot be saved, or are saved but never embedded"""


def _bad(reason: str) -> State:
    return State(ok=False, reason=reason, detail=_MEANING[reason])


class Part:
    """One part, with its last state."""

    def __init__(
        self, name: str, check: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._check = check
        self._clock = clock
        self._checked_at = 0.0
        self._last: Future[State] | None = None

    async def state(self, seconds: float = _SECONDS) -> State:
        """The state, at most about half a second old."""
        last = self._last
        if last is None or (last.done() and self._clock() - self._checked_at >= _FRESH):
            try:
                last = self._last = submit(f"evervec-ready-{self.name}", self._result)
            except RuntimeError:  # no thread can be started, so requests get none either
                return _bad("error")
        checked = asyncio.wrap_future(last)
        await asyncio.wait({checked}, timeout=seconds)
        return checked.result() if checked.done() else _bad("timeout")

    def _result(self) -> State:
        try:
            with deadline(_SECONDS):
                self._check()
        except NotReady as found:
            log.warning("not ready: %s: %s", self.name, found)
            return _bad(str(found))
        except EvervecError as error:
            log.warning("not ready: %s: %s", self.name, error)
            return _bad("unreachable")
        except Exception:
            log.exception("not ready: %s", self.name)
            return _bad("error")
        finally:
            self._checked_at = self._clock()
        return _GOOD


class Readiness:
    """All parts of one service."""

    def __init__(self, ev: Evervec, background: Background) -> None:
        self._ev = ev
        self._background = background
        checks = (self._store, self._disk, self._index, self._provider, self._workers)
        self._parts = [Part(check.__name__.strip("_"), check) for check in checks]

    async def parts(self) -> dict[str, State]:
        states = await asyncio.gather(*(part.state() for part in self._parts))
        return {part.name: state for part, state in zip(self._parts, states, strict=True)}

    def _store(self) -> None:
        store = self._ev.store
        store.mark()
        if store.read_only:
            raise NotReady("unwritable")
        store.try_write()

    def _disk(self) -> None:
        least = self._ev.settings.disk_free_mb * 1e6
        folders = [Path(tempfile.gettempdir()), *filter(None, [self._ev.store.folder])]
        for folder in folders:
            free = shutil.disk_usage(folder).free
            if free < least:
                raise NotReady("full" if free < _FULL else "low")

    def _index(self) -> None:
        for collection in self._ev.store.versions.collections()[:1]:
            self._ev.index.held(collection.version, None, 0, 0)

    def _provider(self) -> None:
        if self._ev.embedder.dimensions == 0:
            raise NotReady("none")
        if why := self._ev.provider.pauses_because():
            log.warning("the provider is paused: %s", why)
            raise NotReady("paused")

    def _workers(self) -> None:
        if trouble := self._background.trouble():
            raise NotReady(trouble)


def summary(states: dict[str, State]) -> dict[str, Any]:
    """The response of `/readyz`."""
    down = any(not states[name].ok for name in ESSENTIAL)
    whole = all(state.ok for state in states.values())
    return {"status": "down" if down else "ready" if whole else "degraded", **states}
