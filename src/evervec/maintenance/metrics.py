"""Metrics of a store and of this process, in Prometheus's text format."""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import accumulate, chain
from typing import Any
from urllib.parse import urlsplit

from evervec.embedding.registry import EmbedderRegistry
from evervec.errors import EvervecError, SettingsError
from evervec.indexes.base import Index
from evervec.model.jobs import Status
from evervec.model.reports import Stats
from evervec.model.usage import Usage
from evervec.queue.queue import Queue
from evervec.runtime.packages import install_command
from evervec.stores.base import Store
from evervec.telemetry.counters import COUNTERS, HISTOGRAMS

try:
    from prometheus_client import CollectorRegistry, generate_latest, start_wsgi_server
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
        Metric,
    )
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
    from prometheus_client.registry import Collector
except ImportError as missing:
    raise SettingsError(
        f"metrics need the package prometheus-client: {install_command('evervec[metrics]')}"
    ) from missing

log = logging.getLogger("evervec")

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_SECURITY = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
_PRIVATE_ZONES = (".local", ".localhost", ".internal", ".lan", ".home.arpa")
_SILENT_SECONDS = 10.0
"""how long a connection may be silent"""
_MOST_TENANTS = _MOST_STREAMS = 100
_ALIVE_SECONDS = 60.0
"""a worker not seen for so long is not counted"""


def queue_metrics(stats: Stats) -> Iterator[Metric]:
    """Jobs by status, of a tenant or of all."""
    jobs = GaugeMetricFamily("evervec_jobs", "Jobs by status", labels=["status"])
    for status in Status:
        jobs.add_metric([status], getattr(stats, status))
    yield jobs
    yield GaugeMetricFamily(
        "evervec_oldest_pending_seconds",
        "How long the oldest due job has waited",
        value=stats.oldest_pending_seconds or 0.0,
    )
    yield GaugeMetricFamily("evervec_paused", "1 while the queue is paused", value=stats.paused)


def usage_metrics(used: Iterable[Usage]) -> Iterator[Metric]:
    """The usage and limits of tenants."""
    has = GaugeMetricFamily(
        "evervec_tenant_usage", "Usage of a tenant, in total or today", labels=["tenant", "quota"]
    )
    may = GaugeMetricFamily(
        "evervec_tenant_quota",
        "Quotas of a tenant, in total or per day",
        labels=["tenant", "quota"],
    )
    held = GaugeMetricFamily(
        "evervec_tenant_held",
        "1 while a tenant's jobs wait because its daily quota is used up",
        labels=["tenant"],
    )
    for usage in used:
        for name in ("kinds", "records", "bytes", "chunks", "tokens", "money"):
            has.add_metric([usage.tenant, name], getattr(usage, name))
        for name, (_, bound) in usage.bounds().items():
            may.add_metric([usage.tenant, name], bound)
        held.add_metric([usage.tenant], usage.waits_until is not None)
    yield from (has, may, held)


def store_metrics(
    store: Store, stats: Stats, models: EmbedderRegistry, index: Index
) -> Iterator[Metric]:
    """Metrics that all processes of a store share."""
    yield from queue_metrics(stats)
    yield GaugeMetricFamily(
        "evervec_paused_tenants",
        "Tenants that are paused individually",
        value=len(stats.paused_tenants),
    )
    # only tenants with limits: their number is bounded by what operators set
    yield from usage_metrics(
        map(store.tenants.usage, store.tenants.limited_tenants()[:_MOST_TENANTS])
    )
    now = store.now()
    live = [w for w in store.workers.all() if now - w.seen_at.timestamp() < _ALIVE_SECONDS]
    yield GaugeMetricFamily("evervec_workers", "Live workers", value=len(live))
    yield GaugeMetricFamily(
        "evervec_held_jobs", "Jobs claimed by live workers", value=sum(w.held for w in live)
    )
    yield GaugeMetricFamily(
        "evervec_provider_calls_in_flight",
        "Provider calls of this process in flight",
        value=stats.in_flight,
    )
    breaker = GaugeMetricFamily(
        "evervec_provider_paused",
        "1 while a provider is paused for all workers: outage, limited, or capped for the day",
        labels=["provider", "state"],
    )
    for provider in {model.provider.name: model.provider for model in models}.values():
        gate = provider.gate()
        shut = {gate.state if gate else "", "capped" if stats.capped else ""}
        for state in ("outage", "limited", "capped"):
            breaker.add_metric([provider.name, state], state in shut)
    yield breaker
    yield from stream_metrics(store)
    yield from index_metrics(index)


def index_metrics(index: Index) -> Iterator[Metric]:
    """Builds of the index that are under way."""
    done = GaugeMetricFamily(
        "evervec_index_build_ratio",
        "Share of an index under construction that is built",
        labels=["kind", "table"],
    )
    left = GaugeMetricFamily(
        "evervec_index_build_seconds_left",
        "Estimated time until an index under construction is built",
        labels=["kind", "table"],
    )
    for build in index.builds():
        which = [build.kind, build.table]
        done.add_metric(which, build.done)
        if build.seconds_left is not None:
            left.add_metric(which, build.seconds_left)
    yield from (done, left)


def stream_metrics(store: Store) -> Iterator[Metric]:
    """Followed change streams: their lag, their last report, and what is set aside."""
    labels = ["tenant", "stream"]
    lag = GaugeMetricFamily(
        "evervec_stream_lag", "Messages of a followed stream that are not saved yet", labels=labels
    )
    seen = GaugeMetricFamily(
        "evervec_stream_seen_timestamp_seconds",
        "When a follower of a stream last reported",
        labels=labels,
    )
    failed = GaugeMetricFamily(
        "evervec_stream_failed", "Messages of a stream that are set aside", labels=labels
    )
    for stream in store.streams.states(None)[:_MOST_STREAMS]:
        which = [stream.tenant, stream.name]
        failed.add_metric(which, stream.failed)
        if stream.seen_at is not None:  # before, the lag is not known
            lag.add_metric(which, stream.lag)
            seen.add_metric(which, stream.seen_at.timestamp())
    yield from (lag, seen, failed)


def process_metrics() -> Iterator[Metric]:
    """The counters and histograms of this process."""
    for counter in COUNTERS:
        sums = counter.sums() or ({} if counter.labels else {(): 0.0})
        family = CounterMetricFamily(counter.name, counter.meaning, labels=counter.labels)
        for labels, amount in sorted(sums.items()):
            family.add_metric(labels, amount)
        yield family
    for histogram in HISTOGRAMS:
        shown = HistogramMetricFamily(histogram.name, histogram.meaning, labels=histogram.labels)
        bounds = [*map(str, histogram.bounds), "+Inf"]
        for labels, (counts, total) in sorted(histogram.seen().items()):
            upto = list(zip(bounds, accumulate(counts), strict=True))
            shown.add_metric(labels, upto, sum_value=total)
        yield shown


class _Once(Collector):
    """A collector that calls a function."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterable[Metric]:
        return self._collect()


def exposition(metrics: Iterable[Metric]) -> bytes:
    """The metrics in Prometheus's text format."""
    found = list(metrics)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(lambda: found))
    return generate_latest(registry)


def _checked(app: Any, bound: str, names: Collection[str]) -> Any:
    """Wrap an application to accept only a `Host` that names this machine. This prevents DNS
    rebinding: a web page whose own name resolves to this machine reads nothing."""

    def checked(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if not _is_own_name(environ.get("HTTP_HOST", ""), bound, names):
            start("403 Forbidden", [("Content-Type", "text/plain"), *_SECURITY])
            return [b"not a name of this machine: ask by address, or give --metrics-name\n"]

        def starting(status: str, headers: list[tuple[str, str]], *more: Any) -> Any:
            return start(status, [*headers, *_SECURITY], *more)

        answered: Iterable[bytes] = app(environ, starting)
        return answered

    return checked


def _is_own_name(host: str, bound: str, names: Collection[str]) -> bool:
    """Whether a `Host` is one that an attacker cannot have registered. On loopback: a loopback
    address, or `localhost`. Elsewhere: any address, and names outside the public DNS, which are
    those without a dot and those of private zones."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name in ("localhost", bound, *names):
        return True
    if bound == "localhost" or _is_address(bound, loopback=True):
        return _is_address(name, loopback=True)
    private = bool(name) and ("." not in name or name.endswith(_PRIVATE_ZONES))
    return private or _is_address(name) or name == socket.getfqdn()


def _is_address(text: str, *, loopback: bool = False) -> bool:
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        return False
    return found.is_loopback or not loopback


def serve_metrics(
    host: str,
    port: int,
    store: Store,
    queue: Queue,
    models: EmbedderRegistry,
    index: Index,
    names: Collection[str] = (),
) -> Callable[[], None]:
    """Serve metrics to Prometheus from a thread; returns the function that stops it. If the store
    does not answer, `evervec_store_up` is 0. `names`: more host names of this machine."""

    def collect() -> Iterable[Metric]:
        try:
            seen = list(store_metrics(store, queue.stats(), models, index))
        except EvervecError as error:
            log.warning("metrics of the store are missing: %s", error)
            seen = []
        up = GaugeMetricFamily("evervec_store_up", "1 if the store is available", value=bool(seen))
        return chain([up], seen, process_metrics())

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(collect))
    try:
        server, thread = start_wsgi_server(port, host, registry)
        server.set_app(_checked(server.get_app(), host, names))
        handler: Any = server.RequestHandlerClass
        server.RequestHandlerClass = type("Handler", (handler,), {"timeout": _SILENT_SECONDS})
    except OSError as error:
        raise SettingsError(
            f"cannot listen on {host}, port {port} ({error.strerror}): choose another "
            "--metrics-host or --metrics-port"
        ) from None

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end
