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
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evervec.errors import EvervecError
from evervec.facade import Evervec
from evervec.model.deadlines import deadline
from evervec.server.inside import Inside

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
        self, name: str, look: Callable[[], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self._look = look
        self._clock = clock
        self._state = _GOOD
        self._looked_at = float("-inf")
        self._looking: asyncio.Future[None] | None = None

    async def state(self, seconds: float = _SECONDS) -> State:
        """The state, at most about half a second old."""
        if self._looking is None:
            if self._clock() - self._looked_at < _FRESH:
                return self._state
            self._start()
        looking = self._looking
        if looking is not None:
            await asyncio.wait({looking}, timeout=seconds)
            if not looking.done():
                return _bad("timeout")
        return self._state

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        looking = self._looking = loop.create_future()

        def end(state: State) -> None:
            self._state, self._looked_at, self._looking = state, self._clock(), None
            if not looking.done():
                looking.set_result(None)

        def run() -> None:
            state = self._found()
            try:
                loop.call_soon_threadsafe(end, state)
            except RuntimeError:
                log.debug("the event loop closed during the check of %s", self.name)

        try:
            threading.Thread(target=run, name=f"evervec-ready-{self.name}", daemon=True).start()
        except RuntimeError:  # no thread can be started, so requests get none either
            end(_bad("error"))

    def _found(self) -> State:
        try:
            with deadline(_SECONDS):
                self._look()
        except NotReady as found:
            log.warning("not ready: %s: %s", self.name, found)
            return _bad(str(found))
        except EvervecError as error:
            log.warning("not ready: %s: %s", self.name, error)
            return _bad("unreachable")
        except Exception:
            log.exception("not ready: %s", self.name)
            return _bad("error")
        return _GOOD


class Readiness:
    """All parts of one service."""

    def __init__(self, ev: Evervec, inside: Inside) -> None:
        self._ev = ev
        self._inside = inside
        looks = (self._store, self._disk, self._index, self._provider, self._workers)
        self._parts = [Part(look.__name__.strip("_"), look) for look in looks]

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
        if trouble := self._inside.trouble():
            raise NotReady(trouble)


def as_shown(states: dict[str, State]) -> dict[str, Any]:
    """The response of `/readyz`."""
    down = any(not states[name].ok for name in ESSENTIAL)
    whole = all(state.ok for state in states.values())
    return {"status": "down" if down else "ready" if whole else "degraded", **states}
