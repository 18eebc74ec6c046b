"""Counts what this process does, for the history and the sums of cost that all processes share.

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
from evervec.model.basics import day_of
from evervec.model.failures import LONGEST_EXAMPLE, FailureCounts, common_message, fingerprint
from evervec.model.history import BOUNDS, OTHER_KINDS, Counts
from evervec.model.jobs import Job, Op, Status
from evervec.model.usage import OF_QUERIES, Spend
from evervec.runtime.threads import start
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
Costs = dict[tuple[str, str], dict[str, tuple[float, float, float]]]
"""calls, tokens and money of queries by day and tenant, and by model"""
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
        self._failing: dict[GroupKey, FailureCounts] = {}
        self._queries: Costs = {}
        self._saving: Costs = {}
        """of these, what a flush is adding to the store"""
        self._flushing = threading.Lock()
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
            group = self._failing[key] = FailureCounts(
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

    def asked(self, tenant: str, model: str, tokens: int, money: float) -> None:
        """Count a query that a provider embedded. Its cost is added to the tenant's spend with the
        next flush."""
        now = self._store.now()
        with self._lock:
            counts = self._counts_of(now, tenant, OTHER_KINDS)
            counts.tokens += tokens
            counts.money += money
            models = self._queries.setdefault((day_of(now), tenant), {})
            models[model] = _sum(models.get(model), (1.0, tokens, money))

    def unsaved(self, day: str, tenant: str | None) -> tuple[float, float]:
        """The tokens and money of a tenant's queries, or of all, that are not in the store yet."""
        with self._lock:
            found = [
                cost
                for costs in (self._queries, self._saving)
                for key in (costs if tenant is None else ((day, tenant),))
                if key[0] == day
                for cost in costs.get(key, {}).values()
            ]
        return sum(tokens for _, tokens, _ in found), sum(money for _, _, money in found)

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
        if self._is_due():
            self.flush()

    def flush_beside(self) -> None:
        """The same in a thread of its own, for a caller that must not wait for the store."""
        if self._is_due() and not self._flushing.locked():
            try:
                start("evervec-recorder", self.flush)
            except RuntimeError as error:  # out of threads
                log.warning("the history is written later: %s", error)

    def _is_due(self) -> bool:
        since = self._since
        if since is None:
            return False
        passed = self._store.now() - since
        return passed >= FLUSH_SECONDS or passed < -_CLOCK_BACK

    def flush(self) -> None:
        """Add the counts to the store. If it is unavailable, they are kept for the next flush."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            counted, failing, since = self._counted, self._failing, self._since
            self._counted, self._failing, self._since = {}, {}, None
            self._saving, self._queries = self._queries, {}
        if since is None:
            return
        try:
            self._add_spend()
            if failing:
                self._store.failures.add(failing)
                failing = {}
            self._store.history.add(counted, self._lane)
        except StoreClosed:
            log.debug("the history of the last seconds is lost: the store is closed")
        except StoreError as error:
            log.warning("the history is written later: %s", error)
            self._put_back(counted, failing, since + FLUSH_SECONDS)

    def _add_spend(self) -> None:
        """Add the cost of queries, and stop claims for tenants whose quota it uses up."""
        if not self._saving:
            return
        self._store.shared.add_spend(
            [
                Spend(day, tenant, OF_QUERIES, model, calls, round(tokens), money)
                for (day, tenant), models in self._saving.items()
                for model, (calls, tokens, money) in models.items()
            ]
        )
        with self._lock:
            tenants = {tenant for _, tenant in self._saving}
            self._saving = {}
        self._store.tenants.hold_spent(tenants)

    def _put_back(
        self,
        counted: Mapping[BucketKey, Counts],
        failing: dict[GroupKey, FailureCounts],
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
            for day_and_tenant, models in self._saving.items():
                since_then = self._queries.setdefault(day_and_tenant, {})
                for model, cost in models.items():
                    since_then[model] = _sum(since_then.get(model), cost)
            self._saving = {}
            self._since = since


def _sum(
    before: tuple[float, float, float] | None, more: tuple[float, float, float]
) -> tuple[float, float, float]:
    if before is None:
        return more
    return before[0] + more[0], before[1] + more[1], before[2] + more[2]
