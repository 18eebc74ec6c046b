"""What workers do beside their jobs: recover lost jobs, enqueue backfills, sweep."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from evervec.errors import IndexBusy
from evervec.maintenance.housekeeping import Housekeeping
from evervec.settings import Settings
from evervec.worker.batch import Batch

log = logging.getLogger("evervec")


class Upkeep:
    """The periodic tasks of one worker, or of the dispatcher where no worker runs."""

    def __init__(
        self,
        housekeeping: Housekeeping,
        starting: Iterator[int],
        migrate: Callable[[], int],
        settings: Settings,
    ) -> None:
        """`starting`: the backfill at a worker's start, one slice per step; `migrate`: the next
        slice of work for versions that are being built or retired."""
        self.housekeeping = housekeeping
        self._starting = starting
        self._migrate = migrate
        self._settings = settings
        self._next_backfill = 0.0
        self._next_sweep = 0.0
        self._backfilled = 0
        self._backfill_batches = 0

    def recover(self, renew: Callable[[], object] = lambda: None) -> bool:
        """Take back jobs whose leases have expired; returns whether there were any. `renew` renews
        the worker's own leases first: a starved heartbeat is not a lost worker."""
        if not self.housekeeping.anything_lost():
            return False
        renew()
        return self.housekeeping.recover() > 0

    def backfill(self, pause: float = 0.0) -> bool:
        """Enqueue one slice of backfill work, behind live work: of the backfill at the start, of an
        attached table, or of a migration. False when none is left; then nothing is checked for
        `pause` seconds."""
        if next(self._starting, None) is not None:
            return True
        now = time.monotonic()
        if now < self._next_backfill:
            return False
        try:
            filled = self.housekeeping.backfill_tables() or self._migrate()
        except IndexBusy:
            filled = 0
        self._next_backfill = now if filled else now + pause
        return filled > 0

    def count_backfilled(self, batch: Batch, succeeded: int) -> None:
        """Log the progress of a backfill, whose jobs have the lowest priority."""
        low = self._settings.backfill_priority
        count = min(succeeded, sum(item.job.priority == low for item in batch.items))
        if count:
            self._backfilled += count
            self._backfill_batches += 1
            fields = {"count": count, "batch": self._backfill_batches}
            log.info("backfill: embedded records", extra=fields)

    def log_backfilled(self) -> None:
        """Log the end of a backfill, when no job is due."""
        if self._backfilled:
            log.info("embedding backfill complete", extra={"count": self._backfilled})
            self._backfilled = self._backfill_batches = 0

    def sweep(self) -> None:
        """Run housekeeping, if it is due."""
        if time.monotonic() >= self._next_sweep:
            self._next_sweep = time.monotonic() + self._settings.housekeeping_seconds
            self.housekeeping.sweep()
