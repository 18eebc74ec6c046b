"""Ends running requests whose key is revoked, within two seconds.

A key is checked at the start of a request. Longer requests (batches, waits, long searches) are
checked again by one query per second for all of them.
"""

from __future__ import annotations

import asyncio
import logging
import time

from evervec.errors import EvervecError
from evervec.server.keys import Keys

log = logging.getLogger("evervec.server")

_SECONDS = 1.0


class Watch:
    """One request in progress."""

    __slots__ = ("_task", "began", "key_id", "revoked")

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self.revoked = False
        self.began = time.monotonic()
        self._task = asyncio.current_task()

    def cancel(self) -> None:
        self.revoked = True
        if self._task is not None:
            self._task.cancel("the key was revoked")

    def forgive(self) -> None:
        """Undo the task's cancellation, so that it can send a response."""
        if self._task is not None:
            self._task.uncancel()


class Revocations:
    """All requests in progress that have a key."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._watches: dict[Watch, None] = {}

    def begin(self, key_id: str) -> Watch:
        """Watch the request of the current task, until `end`."""
        watch = Watch(key_id)
        self._watches[watch] = None
        return watch

    def end(self, watch: Watch) -> None:
        del self._watches[watch]

    async def tend(self) -> None:
        """Cancel requests whose keys are revoked or have expired; runs until cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            try:
                await self.look()
            except EvervecError as error:
                log.warning("keys of running requests were not checked: %s", error)

    async def look(self) -> None:
        before = time.monotonic() - _SECONDS
        long = [watch for watch in self._watches if watch.began <= before]
        if not long:
            return
        # not in the threads of requests: all may be used by requests that must be cancelled
        good = await asyncio.to_thread(self._keys.good, {watch.key_id for watch in long})
        for watch in long:
            if watch.key_id not in good and watch in self._watches and not watch.revoked:
                watch.cancel()
