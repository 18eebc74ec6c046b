"""Periodic maintenance: recover lost jobs, purge old rows, tend store and index, raise alerts.

One process at a time does it, in batches that never lock the store for long. Every step can be
called by itself, and a simulator runs `steps` one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import IndexBusy, IndexUnavailable
from evervec.indexes.base import Index
from evervec.maintenance.alerts import Alerts, Problem
from evervec.model.jobs import Status
from evervec.queue.queue import Queue
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.tables.tables import Tables

log = logging.getLogger("evervec")

_BATCH = 1000
_DAY = 86400.0
_ROUNDS = 20
_KEEP_SPEND = 400 * _DAY
"""somewhat over a year, so that a month can be compared with the same month of last year"""


class Housekeeping:
    """The sweep of one process over its store and index."""

    def __init__(
        self,
        store: Store,
        index: Index,
        queue: Queue,
        tables: Tables,
        models: EmbedderRegistry,
        settings: Settings,
    ) -> None:
        self._store = store
        self._index = index
        self._queue = queue
        self._tables = tables
        self._models = models
        self._settings = settings
        self._index_away: str | None = None
        self.alerts = Alerts(store, settings)
        self.steps: tuple[Callable[[], object], ...] = (
            self.recover,
            self.drop_old_jobs,
            self.drop_orphans,
            self.drop_history,
            self.forget_gone,
            self.tend_store,
            self.tend_index,
            self.count,
            self.alert,
        )

    def anything_lost(self) -> bool:
        """Whether a lease has expired."""
        return self._store.leases.any_expired()

    def backfill_tables(self) -> int:
        """Enqueue a slice of the rows that were in a table before it was attached; returns how
        many."""
        return self._tables.attempt(self._tables.backfill, self._settings.backfill_priority)

    def sweep(self) -> bool:
        """Run all steps, unless another process is doing so; returns whether they were run. The
        process that sweeps keeps the lock until the next sweep is due."""
        every = self._settings.housekeeping_seconds
        renewal = float("-inf")
        for step in self.steps:
            if (now := self._store.now()) >= renewal:
                if self._store.shared.lock("housekeeping", self._queue.worker, every) is None:
                    return False
                renewal = now + every / 2
            step()
        return True

    # steps
    def recover(self) -> int:
        """Take back jobs whose worker stopped renewing their leases."""
        return self._queue.recover_stuck() if self.anything_lost() else 0

    def drop_old_jobs(self) -> None:
        """Purge done jobs and dead letters that were kept long enough."""
        done = self._purge(Status.DONE, self._settings.keep_done_days)
        if done:
            log.info("Cleaned up %d done jobs", done, extra={"count": done})
        dead = self._purge(Status.FAILED, self._settings.keep_dead_days)
        if dead:
            log.warning("Cleaned up %d dead letters", dead, extra={"count": dead})

    def _purge(self, status: Status, days: float) -> int:
        before = self._store.now() - days * _DAY
        return _in_batches(lambda: self._store.jobs.purge(status, before, limit=_BATCH))

    def drop_orphans(self) -> None:
        """Drop jobs of versions that no longer exist: no worker can do them."""
        if lost := _in_batches(lambda: self._store.jobs.purge_orphans(_BATCH)):
            log.warning("dropped %d jobs of deleted versions", lost, extra={"count": lost})

    def drop_history(self) -> None:
        """Purge old attempts and removals, and the rows that deleted records left."""
        before = self._kept_since()
        _in_batches(lambda: self._store.jobs.purge_history(before, _BATCH))

    def forget_gone(self) -> None:
        """Remove expired locks, workers that are no longer seen, and old spending."""
        day = datetime.fromtimestamp(self._store.now() - _KEEP_SPEND, UTC)
        self._store.forget_gone(day.date().isoformat())

    def tend_store(self) -> None:
        self._store.tend()

    def tend_index(self) -> None:
        """Compact the index; whether it answered is its known state until the next sweep."""
        try:
            self._index.tend(self._kept_since())
            self._index_away = None
        except IndexBusy as error:
            log.info("index maintenance is postponed to the next housekeeping: %s", error)
        except IndexUnavailable as error:
            log.warning("index maintenance failed: %s", error)
            self._index_away = str(error)

    def count(self) -> None:
        """Log the counts, at debug level."""
        if not log.isEnabledFor(logging.DEBUG):
            return
        stats = self._store.jobs.stats(None)
        counts = {
            "pending": stats.pending, "processing": stats.processing, "done": stats.done,
            "failed": stats.failed,
        }  # fmt: skip
        told = ", ".join(f"{count} {name}" for name, count in counts.items())
        log.debug("jobs: %s", told, extra=counts)
        for v in self._store.versions.all():
            facts = {"kind": v.kind, "version": v.name, "state": v.state, "records": v.items}
            log.debug(
                "vectors: %s: %d records, %s, %s", v.kind, v.items, v.name, v.state, extra=facts
            )

    def alert(self) -> None:
        """Report problems that began or ended."""
        self.alerts.update(list(self._problems()))
        self.alerts.post_soon()

    def _kept_since(self) -> float:
        return self._store.now() - self._settings.keep_done_days * _DAY

    def _problems(self) -> Iterator[Problem]:
        settings, now = self._settings, self._store.now()
        failed = self._store.jobs.failed_count()
        if failed >= settings.alert_failed:
            yield Problem("failed", f"{failed} failed jobs", fields={"failed": failed})
        if limit := settings.alert_lag_seconds:
            since = self._store.jobs.waiting_since(settings.backfill_priority)
            if since is not None and now - since >= limit:
                why = " (the queue is paused)" if self._store.jobs.paused() else ""
                yield Problem("lag", f"due work has waited for {now - since:.0f} s{why}", since)
        if limit := settings.alert_away_seconds:
            gates = ((model.spec.provider, model.provider.gate()) for model in self._models)
            for name, gate in gates:
                if gate and gate.state == "outage":
                    text = f"the provider {name} is unavailable: {gate.reason}"
                    yield Problem("provider", text, gate.since, limit)
                    break
            if self._index_away:
                yield Problem(
                    "index", f"the index is unavailable: {self._index_away}", patience=limit
                )
        for kind, text in self._tables.alarms():
            yield Problem(f"table {kind}", text, fields={"kind": kind})
        if failing := self._tables.failing:
            text = f"attached tables cannot be synced: {failing}"
            yield Problem("tables", text, patience=settings.alert_away_seconds)
        if limit := settings.alert_transaction_seconds:
            found = self._store.troubles(limit)
            if found:
                more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
                yield Problem("transaction", found[0] + more)


def _in_batches(drop: Callable[[], int]) -> int:
    """Run `drop` repeatedly, up to the limit of one sweep."""
    total = 0
    for _ in range(_ROUNDS):
        count = drop()
        total += count
        if count < _BATCH:
            break
    return total
