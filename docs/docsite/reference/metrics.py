"""The page of metrics, from what a service and a worker answer to Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import httpx
from fastapi import FastAPI
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

import evervec
from docsite.reference.markdown import code, sections, table
from evervec.maintenance.metrics import store_metrics
from evervec.server.app import make_app
from evervec.telemetry.counters import COUNTERS, HISTOGRAMS

_OF_WORKERS = ("evervec_store_up", "gauge", "", "1 if the store is available; workers only")


def families() -> list[tuple[str, str, str, str]]:
    """Name, type, labels and meaning of every metric, by name."""
    with evervec.open("memory:", embedder="hashing") as ev:
        ev.set_limits(evervec.Limits(records=1))
        text, declared = asyncio.run(_exposition(make_app(ev))), _declared(ev)
    found = text_string_to_metric_families(text)
    return sorted([*(_row(each, declared) for each in found), _OF_WORKERS])


def page() -> str:
    return sections(
        "# Metrics",
        "All metrics, in the Prometheus text format. [Telemetry](../telemetry.md) describes where "
        "they are exported and which of them to sum. A histogram has the series `_bucket`, `_sum` "
        "and `_count`.",
        table(
            ("metric", "type", "labels", "meaning"),
            ((code(name), kind, labels, meaning) for name, kind, labels, meaning in families()),
        ),
    )


def _declared(ev: evervec.Evervec) -> dict[str, Sequence[str]]:
    """The labels of metrics by name, also of those that have no values now."""
    labels: dict[str, Sequence[str]] = {each.name: each.labels for each in (*COUNTERS, *HISTOGRAMS)}
    for family in store_metrics(ev.store, ev.queue.stats(), ev.models, ev.index):
        labels[family.name] = getattr(family, "_labelnames", ())
    return labels


def _row(family: Metric, declared: dict[str, Sequence[str]]) -> tuple[str, str, str, str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels = declared[name] if name in declared else dict.fromkeys(_labels_of(family))
    return name, family.type, ", ".join(map(code, labels)), family.documentation


def _labels_of(family: Metric) -> Iterator[str]:
    for sample in family.samples:
        yield from sample.labels


async def _exposition(app: FastAPI) -> str:
    """What a platform admin reads at `/metrics`, after an earlier request."""
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        await http.get("/healthz")
        answer = await http.get("/metrics")
    answer.raise_for_status()
    return answer.text
