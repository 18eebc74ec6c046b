"""Liveness, readiness and metrics; a tenant sees only its own metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from fastapi.routing import APIRoute
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response

from evervec.maintenance.metrics import (
    CONTENT_TYPE,
    exposition,
    process_metrics,
    queue_metrics,
    store_metrics,
    usage_metrics,
)
from evervec.server.access_log import log_request
from evervec.server.answers import Shown, answer, shows
from evervec.server.readiness import State, summary
from evervec.server.requests import Scope
from evervec.server.router import Routes
from evervec.server.view import ReaderView, View

router = Routes("health", APIRoute)  # probes may send any parameters

_METHODS = frozenset({"GET", "POST", "DELETE", "PATCH", "PUT", "HEAD", "OPTIONS"})
_MOST_TENANTS = 1000


class AliveOut(Shown):
    """The process responds."""

    status: Literal["ok"]


@shows(State)
class PartOut(Shown):
    """The state of one part of the service."""


class ReadyOut(Shown):
    """The state of the service by part. Without index or provider, the service saves records and
    searches text, so it is degraded, not down. It is down when records cannot be saved, because of
    the store or the disk, or when one of its own workers does not work."""

    status: Literal["ready", "degraded", "down"]
    store: PartOut
    disk: PartOut
    index: PartOut
    provider: PartOut
    workers: PartOut


@router.get("/healthz", summary="Liveness check", responses={200: {"model": AliveOut}})
async def check_health() -> Response:
    """Public; it checks nothing."""
    return answer(AliveOut, {"status": "ok"})


@router.get(
    "/readyz",
    summary="Readiness check",
    responses={
        200: {"model": ReadyOut},
        503: {
            "model": ReadyOut,
            "description": "Store, disk or a worker in the service does not work.",
        },
    },
)
async def check_readiness(request: Request) -> Response:
    """Store, disk, index, provider and the service's workers, each with a reason. It is public, so
    the details are only in the service's log."""
    shown = summary(await request.app.state.readiness.parts())
    return answer(ReadyOut, shown, 503 if shown["status"] == "down" else 200)


@router.on(
    "GET /metrics", "Metrics for Prometheus", None, response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)  # fmt: skip
async def get_metrics(request: Request, view: ReaderView) -> Response:
    """Of the key's tenant; for a platform admin, of all tenants."""
    # an admin's request does not wait in a tenant's turn
    run = view.service.run if view.everyone else view.run
    body = await run(lambda: exposition(_collect(view, request.app.state.counts)))
    return Response(body, media_type=CONTENT_TYPE)


class Counts:
    """Responses by tenant, route and status. To bound the number of labels, unknown methods and
    paths, and tenants after the first thousand, are counted together."""

    def __init__(self) -> None:
        self.answers: Counter[tuple[str, str, str, int]] = Counter()
        self._tenants: set[str] = set()

    @property
    def requests(self) -> int:
        return self.answers.total()

    @property
    def errors(self) -> int:
        """Requests that the service failed to answer, and those that were cut off."""
        return sum(n for (*_, status), n in self.answers.items() if status >= 500 or not status)

    def __call__(self, scope: Scope, status: int, seconds: float) -> None:
        log_request(scope, status, seconds)
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
        yield from store_metrics(view.ev.store, stats, view.ev.models, view.ev.index)
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
        held = GaugeMetricFamily(
            "evervec_held_bytes", "Bytes of bodies in progress, and of unread responses",
            labels=["of"],
        )  # fmt: skip
        held.add_metric(["bodies"], view.service.bodies.held)
        held.add_metric(["responses"], view.service.unread.held)
        yield held
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
