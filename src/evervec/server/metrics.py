"""The service in numbers, for Prometheus; each tenant is shown its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from evervec.model import Status
from evervec.server.requests import Scope

if TYPE_CHECKING:
    from evervec.server.access import View


class Counts:
    """Answers that were given, by tenant, route and status."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, str, int]] = Counter()

    def __call__(self, scope: Scope, status: int) -> None:
        caller, route = scope.get("caller"), scope.get("route")
        tenant = caller.tenant if caller else ""
        path = getattr(route, "path_format", "") if route else ""
        self.answers[tenant, scope["method"] if path else "", path, status] += 1


class _Seen(Collector):
    """One look at what a request may see."""

    def __init__(self, view: View, counts: Counts) -> None:
        self._view = view
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        view = self._view
        stats = view.queue.stats()
        jobs = GaugeMetricFamily("evervec_jobs", "Jobs by status", labels=["status"])
        for status in Status:
            jobs.add_metric([status], getattr(stats, status))
        yield jobs
        yield GaugeMetricFamily(
            "evervec_oldest_pending_seconds",
            "How long the oldest due job has waited",
            value=stats.oldest_pending_seconds or 0.0,
        )
        answers = CounterMetricFamily(
            "evervec_http_requests", "Requests that were answered",
            labels=["tenant", "method", "route", "status"],
        )  # fmt: skip
        for (tenant, method, route, code), count in sorted(self._counts.answers.items()):
            if view.everyone or tenant == view.tenant:
                answers.add_metric([tenant, method, route, str(code)], count)
        yield answers
        if view.everyone:
            yield CounterMetricFamily(
                "evervec_limiter_errors",
                "Requests that passed because the rate limit could not be counted",
                value=view.service.limiter.errors,
            )


def exposition(view: View, counts: Counts) -> tuple[bytes, str]:
    registry = CollectorRegistry()
    registry.register(_Seen(view, counts))
    return generate_latest(registry), CONTENT_TYPE_LATEST
