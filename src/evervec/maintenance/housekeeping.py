"""What workers do beside their jobs: recover lost jobs, enqueue backfills, and sweep.

A sweep purges old rows, maintains store and index, and raises alerts. One process at a time does it, in
batches that never lock the store for long. Every step can be called by itself, and a simulator runs
`steps` one by one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import IndexBusy, IndexUnavailable
from evervec.indexes.base import Index
from evervec.maintenance.alerts import Alerts, Problem
from evervec.maintenance.stream_alerts import stream_problems
from evervec.model.jobs import Status
from evervec.model.phrases import clock_time
from evervec.queue.queue import Queue
from evervec.settings import Settings
from evervec.stores.base import Store
from evervec.tables.tables import Tables
from evervec.worker.batch import Batch

log = logging.getLogger("evervec")

_BATCH = 1000
_DAY = 86400.0
_ROUNDS = 20
_DROP_REST = 4.0
"""pause after a batch of purged rows, in multiples of the time that the batch took"""
_MOST_TENANTS = 1000
"""tenants whose waiting jobs are noted one by one: those with the most"""
_KEEP_SPEND = 400 * _DAY
"""somewhat over a year, so that a month can be compared with the same month of last year"""


@dataclass(eq=False, repr=False)
class Housekeeping:
    """The sweep of one process over its store and index."""

    _store: Store
    _index: Index
    _queue: Queue
    _tables: Tables
    _models: EmbedderRegistry
    _settings: Settings
    _index_away: str | None = field(default=None, init=False)
    _unfinished: list[Callable[[], int]] = field(default_factory=list, init=False)
    _dropped: int = field(default=0, init=False)
    _given_upto: int = field(default=0, init=False)
    """the record up to which `drop_given` has come"""

    def __post_init__(self) -> None:
        self.alerts = Alerts(self._store, self._settings)
        self.steps: tuple[Callable[[], object], ...] = (
            self.recover,
            self.drop_old_jobs,
            self.drop_orphans,
            self.drop_history,
            self.sample_depths,
            self.drop_buckets,
            self.forget_gone,
            self._store.maintain,
            self.drop_given,
            self.tend_index,
            self.count,
            self.alert,
        )

    def look_for_lost(self) -> bool:
        """Look for expired leases; returns whether there are any."""
        return self._store.leases.look_for_expired()

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
        return self._queue.recover_stuck() if self.look_for_lost() else 0

    def drop_old_jobs(self) -> None:
        """Purge done jobs, their attempts and dead letters that were kept long enough."""
        self._in_batches(self._drop_ended)
        self._log_dropped()
        dead = self._in_batches(self._drop_dead)
        if dead:
            log.warning("Cleaned up %d dead letters", dead, extra={"count": dead})

    def _drop_ended(self) -> int:
        jobs, attempts = self._store.jobs.purge_ended(self._kept_since(), _BATCH)
        self._dropped += jobs
        return jobs + attempts

    def _drop_dead(self) -> int:
        before = self._store.now() - self._settings.keep_dead_days * _DAY
        return self._store.jobs.purge(Status.FAILED, before, limit=_BATCH)

    def _log_dropped(self) -> None:
        if self._dropped:
            log.info("Cleaned up %d done jobs", self._dropped, extra={"count": self._dropped})
            self._dropped = 0

    @property
    def has_more_to_drop(self) -> bool:
        """Whether the last sweep left old rows, because there were too many for one sweep."""
        return bool(self._unfinished)

    def drop_more(self) -> None:
        """Purge one more batch of what the last sweep left."""
        self._unfinished = [drop for drop in self._unfinished if drop() > 0]
        if not self._unfinished:
            self._log_dropped()

    def drop_orphans(self) -> None:
        """Drop jobs of versions that no longer exist: no worker can do them."""
        if lost := self._in_batches(self._drop_lost):
            log.warning("dropped %d jobs of deleted versions", lost, extra={"count": lost})

    def _drop_lost(self) -> int:
        return self._store.jobs.purge_orphans(_BATCH)

    def drop_history(self) -> None:
        """Purge old removals, and the rows that deleted records left."""
        self._in_batches(self._drop_history)

    def _drop_history(self) -> int:
        return self._store.jobs.purge_history(self._kept_since(), _BATCH)

    def sample_depths(self) -> None:
        """Note how many jobs wait, for the history."""
        self._store.history.sample_depths(_MOST_TENANTS)

    def drop_buckets(self) -> None:
        """Purge buckets of the history, and groups of failures, that were kept long enough."""
        self._in_batches(self._store.history.purge)
        self._store.failures.purge(self._store.now() - self._settings.keep_dead_days * _DAY)

    def forget_gone(self) -> None:
        """Remove expired locks, workers that are no longer seen, and old spending."""
        day = datetime.fromtimestamp(self._store.now() - _KEEP_SPEND, UTC)
        self._store.forget_gone(day.date().isoformat())

    def drop_given(self) -> None:
        """Drop vectors that came with records and that no job needs any more; some in each sweep."""
        for _ in range(_ROUNDS):
            self._given_upto = self._store.shared.drop_stray_given(self._given_upto, _BATCH)
            if not self._given_upto:
                break

    def tend_index(self) -> None:
        """Compact the index; whether it answered is its known state until the next sweep."""
        try:
            self._index.maintain(self._kept_since())
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

    def _in_batches(self, drop: Callable[[], int]) -> int:
        """Run `drop` until nothing is left, or up to the limit of one sweep: the rest follows
        between the sweeps, batch by batch."""
        if drop in self._unfinished:
            self._unfinished.remove(drop)
        total = 0
        for _ in range(_ROUNDS):
            count = drop()
            total += count
            if not count:
                return total
        self._unfinished.append(drop)
        return total

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
                yield Problem(
                    "lag", f"due work has waited since {clock_time(since, now)}{why}", since
                )
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
        if self._store.streams.any_failed():
            text = "messages of change streams are set aside: see `evervec follow --failed`"
            yield Problem("streams", text)
        yield from stream_problems(self._store, settings.alert_away_seconds)
        if limit := settings.alert_transaction_seconds:
            found = self._store.troubles(limit)
            if found:
                more = f"; and {len(found) - 1} more" if len(found) > 1 else ""
                yield Problem("transaction", found[0] + more)


@dataclass(eq=False, repr=False)
class Upkeep:
    """The periodic tasks of one worker, or of the dispatcher where no worker runs."""

    housekeeping: Housekeeping
    _starting: Iterator[int]
    """the backfill at a worker's start, one slice per step"""
    _migrate: Callable[[], int]
    """the next slice of work for versions that are being built or retired"""
    _settings: Settings
    _next_backfill: float = field(default=0.0, init=False)
    _next_sweep: float = field(default=0.0, init=False)
    _next_drop: float = field(default=0.0, init=False)
    _backfilled: int = field(default=0, init=False)
    _backfill_batches: int = field(default=0, init=False)

    def recover(self, renew: Callable[[], object] = lambda: None) -> bool:
        """Take back jobs whose leases have expired; returns whether there were any. `renew` renews
        the worker's own leases first: a starved heartbeat is not a lost worker."""
        if not self.housekeeping.look_for_lost():
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
        """Run housekeeping, if it is due; between two sweeps, drop what the last one left, in a
        part of the time so that jobs hardly wait."""
        now = time.monotonic()
        if now >= self._next_sweep:
            self._next_sweep = now + self._settings.housekeeping_seconds
            self.housekeeping.sweep()
        elif now >= self._next_drop and self.housekeeping.has_more_to_drop:
            self.housekeeping.drop_more()
            ended = time.monotonic()
            self._next_drop = ended + _DROP_REST * (ended - now)
