"""Requests that outlive their key: a revoked one ends them within two seconds.

A key is checked when a request comes in. Most requests are over before it could be revoked; those
that are not (batches, waits, long searches) are looked after by one query a second for all of them.
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
    """One request under way."""

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
        """The cancellation has done its work: the task goes on to answer."""
        if self._task is not None:
            self._task.uncancel()


class Revocations:
    """All requests under way that came with a key."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._watches: dict[Watch, None] = {}

    def begin(self, key_id: str) -> Watch:
        """Look after the request of this task, until `end`."""
        watch = Watch(key_id)
        self._watches[watch] = None
        return watch

    def end(self, watch: Watch) -> None:
        del self._watches[watch]

    async def tend(self) -> None:
        """End requests whose keys are revoked or have expired, until cancelled."""
        while True:
            await asyncio.sleep(_SECONDS)
            try:
                await self.look()
            except EvervecError as error:
                log.warning("keys of requests under way are not checked: %s", error)

    async def look(self) -> None:
        before = time.monotonic() - _SECONDS
        long = [watch for watch in self._watches if watch.began <= before]
        if not long:
            return
        # not in the threads of requests: those may all be taken by what has to end
        good = await asyncio.to_thread(self._keys.good, {watch.key_id for watch in long})
        for watch in long:
            if watch.key_id not in good and watch in self._watches and not watch.revoked:
                watch.cancel()
