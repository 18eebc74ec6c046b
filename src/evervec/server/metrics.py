"""Metrics of the service for Prometheus; a tenant sees only its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from evervec.maintenance.metrics import (
    CONTENT_TYPE,
    process_metrics,
    queue_metrics,
    store_metrics,
    usage_metrics,
)
from evervec.maintenance.metrics import exposition as shown
from evervec.server.requests import Scope

if TYPE_CHECKING:
    from evervec.server.access import View

_METHODS = frozenset({"GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS"})
_MOST_TENANTS = 1000


class Counts:
    """Responses by tenant, route and status. To bound the number of labels, unknown methods and
    paths, and tenants after the first thousand, are counted together."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, str, int]] = Counter()
        self._tenants: set[str] = set()

    def __call__(self, scope: Scope, status: int) -> None:
        caller, route = scope.get("caller"), scope.get("route")
        tenant = self._bounded(caller.tenant) if caller else ""
        path = getattr(route, "path_format", "") if route else ""
        method = scope["method"] if path and scope["method"] in _METHODS else ""
        self.answers[tenant, method, path, status] += 1

    def _bounded(self, tenant: str) -> str:
        if len(self._tenants) < _MOST_TENANTS:
            self._tenants.add(tenant)
        return tenant if tenant in self._tenants else "(others)"


def _collect(view: View, counts: Counts) -> Iterator[Metric]:
    stats = view.queue.stats()
    if view.everyone:
        yield from store_metrics(view.ev.store, stats, view.ev.models)
        yield from process_metrics()
        yield CounterMetricFamily(
            "evervec_limiter_errors",
            "Requests allowed because the rate limiter failed",
            value=view.service.limiter.errors,
        )
        pool = view.service.pool
        yield GaugeMetricFamily(
            "evervec_requests_running", "Threads that work for requests", value=pool.running
        )
        yield GaugeMetricFamily(
            "evervec_requests_waiting", "Requests that wait for a thread", value=pool.waiting
        )
        in_progress = GaugeMetricFamily(
            "evervec_requests_under_way", "Requests in progress by tenant", labels=["tenant"]
        )
        for tenant, count in view.service.in_progress.most_common(_MOST_TENANTS):
            in_progress.add_metric([tenant], count)
        yield in_progress
    else:
        yield from queue_metrics(stats)
        yield from usage_metrics([view.ev.usage()])
    answers = CounterMetricFamily(
        "evervec_http_requests", "Requests answered",
        labels=["tenant", "method", "route", "status"],
    )  # fmt: skip
    for (tenant, method, route, code), count in sorted(counts.answers.items()):
        if view.everyone or tenant == view.tenant:
            answers.add_metric([tenant, method, route, str(code)], count)
    yield answers


def exposition(view: View, counts: Counts) -> tuple[bytes, str]:
    return shown(_collect(view, counts)), CONTENT_TYPE
