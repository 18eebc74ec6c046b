"""Counters and histograms of this process.

They are plain numbers, updated once per batch rather than once per record, and need no package.
`metrics` exposes them to Prometheus. They cover the whole process, as Prometheus expects; metrics
of the store are read from the store.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

_MOST_SERIES = 100
"""series per metric; further label values are counted as `other`"""

Labels = tuple[str, ...]


class Counter:
    """A number that only grows, for each combination of label values."""

    def __init__(self, name: str, meaning: str, *labels: str) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self._lock = threading.Lock()
        self._sums: dict[Labels, float] = {}

    def add(self, amount: float, *values: str) -> None:
        if amount:
            with self._lock:
                key = _bounded(self._sums, values)
                self._sums[key] = self._sums.get(key, 0.0) + amount

    def sums(self) -> dict[Labels, float]:
        with self._lock:
            return dict(self._sums)


class Histogram:
    """Counts observations by upper bound, for each combination of label values."""

    def __init__(self, name: str, meaning: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.meaning, self.labels = name, meaning, labels
        self.bounds = tuple(bounds)
        self._lock = threading.Lock()
        self._seen: dict[Labels, tuple[list[int], float]] = {}

    def observe(self, seconds: float, *values: str, times: int = 1) -> None:
        with self._lock:
            key = _bounded(self._seen, values)
            counts, total = self._seen.get(key) or ([0] * (len(self.bounds) + 1), 0.0)
            counts[bisect_left(self.bounds, seconds)] += times
            self._seen[key] = (counts, total + seconds * times)

    @contextmanager
    def timing(self, *values: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - began, *values)

    def seen(self) -> dict[Labels, tuple[list[int], float]]:
        """By labels, the count of each bucket (the last has no bound), and the sum of the
        values."""
        with self._lock:
            return {key: (list(counts), total) for key, (counts, total) in self._seen.items()}


def _bounded(known: Mapping[Labels, object], values: Labels) -> Labels:
    """The labels under which a value is counted."""
    if values in known or len(known) < _MOST_SERIES:
        return values
    return ("other",) * len(values)


_QUICK = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)

FRESHNESS = Histogram(
    "evervec_freshness_seconds",
    "From the commit of a change (or when it was scheduled for) until searches find it",
    _SLOW,
)
STAGES = Histogram(
    "evervec_stage_seconds",
    "Time of a batch in each stage: claim, prepare, embed (one provider call), write",
    _QUICK,
    "stage",
)
ATTEMPTS = Counter(
    "evervec_attempts_total",
    "Claims of jobs by outcome: done, retry, failed, released, lost or crashed",
    "outcome",
)
DEAD_LETTERS = Counter("evervec_dead_letters_total", "Jobs that failed for good")
CHUNKS = Counter(
    "evervec_chunks_total",
    "Chunks of finished jobs, embedded by a provider or reused",
    "source",
)
CALLS = Counter(
    "evervec_provider_calls_total",
    "Calls to providers for records, queries and reranking, by outcome: ok, outage, limited, "
    "late or error",
    "provider",
    "purpose",
    "outcome",
)
TOKENS = Counter("evervec_provider_tokens_total", "Tokens that providers counted", "provider")
SEARCHES = Histogram(
    "evervec_search_seconds", "Duration of searches, by how hits were found", _QUICK, "via"
)
LIMITER = Counter(
    "evervec_limiter_decisions_total", "Requests that the rate limit allowed or refused", "decision"
)
REFUSED = Counter(
    "evervec_refused_requests_total",
    "Requests rejected because too many were in progress, of their tenant or in total, because "
    "their tenant exceeded its share, or because of the bytes that they hold",
    "bound",
)
QUOTAS = Counter(
    "evervec_quota_refusals_total",
    "Writes rejected, and searches answered from text, because a tenant's quota is used up",
    "quota",
)
AUDIT = Counter(
    "evervec_audit_entries_total",
    "Entries of the audit log: written, repeated (only counted), or removed beyond "
    "keep_audit_entries",
    "what",
)
DISPATCHED = Counter(
    "evervec_dispatched_jobs_total", "Jobs of push mode, published or released", "outcome"
)
DELIVERIES = Counter(
    "evervec_deliveries_total",
    "Deliveries of push mode by outcome: done, pending, failed, nothing or away",
    "outcome",
)

COUNTERS = (
    ATTEMPTS, DEAD_LETTERS, CHUNKS, CALLS, TOKENS, LIMITER, REFUSED, QUOTAS, AUDIT, DISPATCHED, DELIVERIES,
)  # fmt: skip
HISTOGRAMS = (FRESHNESS, STAGES, SEARCHES)
