"""What has to be done from time to time: take back, forget, warn.

One process at a time does it, in batches that never hold the store for long. Every
step can be called by itself.
"""

from __future__ import annotations

import logging

from evervec.errors import IndexUnavailable
from evervec.indexes.base import Index
from evervec.model import Status
from evervec.queue import Queue
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.tables import Tables

log = logging.getLogger("evervec")

_BATCH = 1000
_DAY = 86400.0
_ROUNDS = 20


class Housekeeping:
    """The sweep of one process over its store and index."""

    def __init__(
        self, store: Store, index: Index, queue: Queue, tables: Tables, settings: Settings
    ) -> None:
        self._store = store
        self._index = index
        self._queue = queue
        self._tables = tables
        self._settings = settings
        self._alerted = False

    def anything_lost(self) -> bool:
        """Whether a lease has run out."""
        return self._store.any_expired()

    def recover(self) -> int:
        """Take back jobs whose worker stopped answering."""
        return self._queue.recover_stuck()

    def backfill_tables(self) -> int:
        """A slice of rows that were in a table before it was attached; how many."""
        return self._tables.backfill(self._settings.backfill_priority)

    def sweep(self) -> bool:
        """All that is past its time, if no other process is at it; whether it was done."""
        every = self._settings.housekeeping_seconds
        if self._store.lock("housekeeping", self._queue.worker, every) is None:
            return False
        now = self._store.now()
        done_before = now - self._settings.keep_done_days * _DAY
        dead_before = now - self._settings.keep_dead_days * _DAY
        done = self._bounded(Status.DONE, done_before)
        if done:
            log.info("Cleaned up %d done jobs", done, extra={"count": done})
        dead = self._bounded(Status.FAILED, dead_before)
        if dead:
            log.warning("Cleaned up %d dead letters", dead, extra={"count": dead})
        for _ in range(_ROUNDS):
            if self._store.purge_history(done_before, _BATCH) < _BATCH:
                break
        self._store.tend()
        self._tend_index(done_before)
        self.alert()
        return True

    def _tend_index(self, before: float) -> None:
        try:
            self._index.tend(before)
        except IndexUnavailable as error:
            log.warning("the index is not tended: %s", error)

    def _bounded(self, status: Status, before: float) -> int:
        total = 0
        for _ in range(_ROUNDS):
            count = self._store.purge(status, before, limit=_BATCH)
            total += count
            if count < _BATCH:
                break
        return total

    def alert(self) -> None:
        """Say once that there are many dead letters, until there are few again."""
        failed = self._store.failed_count()
        if failed < self._settings.alert_failed:
            self._alerted = False
        elif not self._alerted:
            self._alerted = True
            log.error("[ALERT] %d failed jobs", failed, extra={"failed": failed})
