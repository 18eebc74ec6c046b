"""Counts what the workers of this process do, for the history that all processes share.

Counts are summed in memory and added to the store every few seconds, and at the end: one transaction for
thousands of jobs. A process that is killed loses the counts of the last seconds, and nothing else.
"""

from __future__ import annotations

import logging
import threading
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import attrgetter

from evervec.errors import StoreClosed, StoreError
from evervec.model.failures import LONGEST_EXAMPLE, Failing, common_message, fingerprint
from evervec.model.history import BOUNDS, OTHER_KINDS, Counts
from evervec.model.jobs import Job, Op, Status
from evervec.stores.base import Store
from evervec.stores.base.failures import GroupKey
from evervec.stores.base.history import BucketKey
from evervec.stores.values import Finish
from evervec.telemetry.counters import CHUNKS, FRESHNESS

log = logging.getLogger("evervec")

FLUSH_SECONDS = 5.0
_CLOCK_BACK = 60.0
"""seconds by which the clock may be set back before the counts are flushed at once"""
_LANES = 8
_MOST_KEYS = 5000
"""tenants, kinds and minutes that are counted apart between two flushes"""
_MOST_GROUPS = 500
"""groups of failures between two flushes; further failures are only counted"""
_alike = attrgetter("job.scheduled_for", "job.tenant", "job.kind")
_embedded, _reused = attrgetter("embedded"), attrgetter("reused")


class Recorder:
    """The counts of this process since the last flush; for any thread."""

    def __init__(self, store: Store, worker: str) -> None:
        self._store = store
        # a store with one writer at a time gains nothing from lanes
        self._lane = 0 if store.is_local else zlib.crc32(worker.encode()) % _LANES
        self._lock = threading.Lock()
        self._counted: dict[BucketKey, Counts] = {}
        self._failing: dict[GroupKey, Failing] = {}
        self._since: float | None = None
        """when the first of these counts came"""

    def finished(self, finishes: Sequence[Finish]) -> None:
        """Count records that became searchable, or whose points were removed."""
        now = self._store.now()
        with self._lock:
            # records saved together share their due time and are adjacent in the claim
            for (due, tenant, kind), same in groupby(finishes, _alike):
                batch = list(same)
                seconds = max(0.0, now - due.timestamp())
                counts = self._counts_of(now, tenant, kind)
                counts.done += len(batch)
                counts.embedded += (embedded := sum(map(_embedded, batch)))
                counts.reused += (reused := sum(map(_reused, batch)))
                counts.deleted += sum(finish.job.op is Op.DELETE for finish in batch)
                counts.fresh[bisect_left(BOUNDS, seconds)] += len(batch)
                FRESHNESS.observe(seconds, times=len(batch))
                CHUNKS.add(embedded, "embedded")
                CHUNKS.add(reused, "reused")

    def failed(self, failures: Iterable[tuple[Job, str, Status | None]]) -> None:
        """Count failed attempts: the job, its error, and what became of it (None: it was no longer
        ours)."""
        now = self._store.now()
        with self._lock:
            for job, said, end in failures:
                if end is not None:
                    error = said.replace("\0", " ")  # as the job keeps it
                    counts = self._counts_of(now, job.tenant, job.kind)
                    counts.failed += end is Status.FAILED
                    counts.retried += end is Status.PENDING
                    self._group(now, job, error, failed=end is Status.FAILED)

    def _group(self, now: float, job: Job, error: str, *, failed: bool) -> None:
        """Count a failure with those that are alike."""
        model = job.embedding_version
        key = (job.tenant, fingerprint(job.kind, model, error))
        group = self._failing.get(key)
        if group is None:
            if len(self._failing) >= _MOST_GROUPS:
                return
            group = self._failing[key] = Failing(
                job.kind, model, common_message(error), "", 0, first_seen=now, last_seen=now
            )
        group.example, group.job_id, group.last_seen = error[:LONGEST_EXAMPLE], job.job_id, now
        group.count(now, failed)

    def spent(
        self,
        spent: Mapping[tuple[str, str], tuple[float, float]],
        money: Callable[[float], float],
    ) -> None:
        """Count the calls and tokens of providers, by tenant and kind."""
        now = self._store.now()
        with self._lock:
            for (tenant, kind), (_, tokens) in spent.items():
                counts = self._counts_of(now, tenant, kind)
                counts.tokens += round(tokens)
                counts.money += money(tokens)

    def _counts_of(self, now: float, tenant: str, kind: str) -> Counts:
        if self._since is None:
            self._since = now
        minute = int(now) // 60 * 60
        found = self._counted.get(key := BucketKey(minute, tenant, kind))
        if found is None:
            if len(self._counted) >= _MOST_KEYS:
                key = BucketKey(minute, tenant, OTHER_KINDS)
            found = self._counted.setdefault(key, Counts())
        return found

    def flush_if_due(self) -> None:
        """Flush, if the last flush was some seconds ago."""
        since = self._since
        if since is not None:
            passed = self._store.now() - since
            if passed >= FLUSH_SECONDS or passed < -_CLOCK_BACK:
                self.flush()

    def flush(self) -> None:
        """Add the counts to the store. If it is unavailable, they are kept for the next flush."""
        with self._lock:
            counted, failing, since = self._counted, self._failing, self._since
            self._counted, self._failing, self._since = {}, {}, None
        if since is None:
            return
        try:
            if failing:
                self._store.failures.add(failing)
                failing = {}
            self._store.history.add(counted, self._lane)
        except StoreClosed:
            log.debug("the history of the last seconds is lost: the store is closed")
        except StoreError as error:
            log.warning("the history is written later: %s", error)
            self._put_back(counted, failing, since + FLUSH_SECONDS)

    def _put_back(
        self,
        counted: Mapping[BucketKey, Counts],
        failing: dict[GroupKey, Failing],
        since: float,
    ) -> None:
        with self._lock:
            for group, later in self._failing.items():
                if group in failing:
                    failing[group].add(later)
                else:
                    failing[group] = later
            self._failing = failing
            for key, counts in counted.items():
                self._counted.setdefault(key, Counts()).add(counts)
            self._since = since
