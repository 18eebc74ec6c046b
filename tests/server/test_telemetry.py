"""What operators see at night: metrics that tell the truth, and log lines that name their job
and request."""

import io
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import evervec
from evervec import Evervec
from evervec.errors import ProviderUnavailable
from evervec.maintenance.metrics import CONTENT_TYPE, _is_own_name
from evervec.telemetry.logs import JsonFormatter
from support.processes import until
from support.prometheus import names, promtool, samples, value
from support.service import Serve, Served, free_port
from support.traces import traced
from support.world import World, fail_for_good

EXPECTED = {
    "evervec_jobs", "evervec_oldest_pending_seconds", "evervec_freshness_seconds_bucket",
    "evervec_stage_seconds_bucket", "evervec_attempts_total", "evervec_dead_letters_total",
    "evervec_chunks_total", "evervec_provider_calls_total", "evervec_provider_tokens_total",
    "evervec_provider_paused", "evervec_search_seconds_bucket", "evervec_limiter_errors_total",
    "evervec_limiter_decisions_total", "evervec_workers", "evervec_http_requests_total",
    "evervec_dispatched_jobs_total", "evervec_deliveries_total", "evervec_quota_refusals_total",
}  # fmt: skip


def scrape(served: Served) -> str:
    answer = served.http().get("/metrics")
    assert answer.headers["content-type"] == CONTENT_TYPE
    return answer.text


@pytest.fixture
def watched(memory: World, serve: Serve) -> tuple[World, Served]:
    return memory, serve(memory.ev)


def test_the_whole_way_of_a_record_is_counted(watched: tuple[World, Served]) -> None:
    world, served = watched
    before = scrape(served)
    world.ev.add("note", "Tea is grown on hills.", id="tea")
    world.clock.move(3)
    assert value(scrape(served), "evervec_oldest_pending_seconds") == 3
    world.ev.process_all()
    world.ev.search("tea")
    world.ev.add("note", "Tea is grown on hills.", id="other")
    fail_for_good(world.ev, "other")
    after = scrape(served)
    assert names(after) >= EXPECTED

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert value(after, "evervec_jobs", status="done") == 1
    assert value(after, "evervec_jobs", status="failed") == 1
    assert grown("evervec_freshness_seconds_count") == 1
    assert grown("evervec_freshness_seconds_sum") == 3
    assert grown("evervec_freshness_seconds_bucket", le="2.5") == 0
    assert grown("evervec_freshness_seconds_bucket", le="5.0") == 1
    assert grown("evervec_attempts_total", outcome="done") == 1
    assert grown("evervec_dead_letters_total") == 1
    assert grown("evervec_chunks_total", source="embedded") == 1
    assert grown("evervec_search_seconds_count", via="hybrid") == 1
    for stage in ("claim", "prepare", "embed", "write"):
        assert grown("evervec_stage_seconds_count", stage=stage) >= 1, stage
    for purpose in ("record", "query"):
        labels = {"provider": "hashing hashing-64", "purpose": purpose, "outcome": "ok"}
        assert grown("evervec_provider_calls_total", **labels) == 1, sorted(samples(after))


def test_an_outage_is_seen_while_it_lasts(watched: tuple[World, Served]) -> None:
    world, served = watched
    (name,) = [model.provider.name for model in world.ev.models]
    paused = {"provider": name, "state": "outage"}
    called = {"provider": name, "purpose": "record", "outcome": "outage"}
    before = value(scrape(served), "evervec_provider_calls_total", **called)

    def outage(_: object) -> None:
        raise ProviderUnavailable("down for the test")

    world.embedder.before = outage
    world.ev.add("note", "alpha", id="1")
    world.ev.process_all()
    world.clock.move(120)
    down = scrape(served)
    assert value(down, "evervec_provider_paused", **paused) == 1
    assert value(down, "evervec_provider_calls_total", **called) == before + 1
    assert value(down, "evervec_oldest_pending_seconds") == 120
    assert value(down, "evervec_jobs", status="failed") == 0
    world.embedder.before = None
    world.ev.process_all()
    assert value(scrape(served), "evervec_provider_paused", **paused) == 0


def test_a_tenant_sees_nothing_of_the_process(served: Served) -> None:
    found = names(served.http(served.key("acme", "reader")).get("/metrics").text)
    assert found == {
        "evervec_jobs", "evervec_oldest_pending_seconds", "evervec_paused",
        "evervec_http_requests_total", "evervec_tenant_usage", "evervec_tenant_quota", "evervec_tenant_held",
    }  # fmt: skip


def test_label_values_stay_few_whatever_callers_send(watched: tuple[World, Served]) -> None:
    _, served = watched
    client = served.http()
    for number in range(30):
        client.get(f"/nowhere/{number}")
        client.request(f"VERB{number}", "/v1/versions")
    seen = [key for key in samples(scrape(served)) if key[0] == "evervec_http_requests_total"]
    assert len(seen) < 8, seen


def test_promtool_finds_nothing_wrong(watched: tuple[World, Served]) -> None:
    world, served = watched
    world.ev.add("note", "alpha", id="1")
    world.ev.process_all()
    world.ev.search("alpha")
    promtool("check", "metrics", text=scrape(served))


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged, as JSON."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger("evervec")
    handler.setFormatter(JsonFormatter())
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(before)


def test_log_lines_name_their_request_and_their_job(
    ev: Evervec, serve: Serve, lines: io.StringIO
) -> None:
    served = serve(ev)
    ev.add("note", "alpha", id="1")
    (job,) = ev.queue.claim(1)
    body = {"job_id": job.job_id, "token": job.token}
    headers = {"X-Request-Id": "abc-123"}
    served.http().post("/internal/worker", json=body, headers=headers).raise_for_status()
    served.close()
    said = [json.loads(line) for line in lines.getvalue().splitlines()]
    (delivered,) = [line for line in said if "was delivered" in line["message"]]
    assert (delivered["job_id"], delivered["request_id"]) == (job.job_id, "abc-123")
    (answered,) = [
        line for line in said if line.get("status") == 200 and "worker" in line["message"]
    ]
    assert (answered["request_id"], answered["level"]) == ("abc-123", "info")
    assert str(job.token) not in lines.getvalue()


@pytest.mark.parametrize(
    ("bound", "host", "own"),
    [
        ("127.0.0.1", "127.0.0.1:9101", True), ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "[::1]:9101", True), ("127.0.0.1", "worker", False),
        ("127.0.0.1", "10.0.0.1", False), ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "", False), ("127.0.0.1", "[", False), ("127.0.0.1", "given.example", True),
        ("0.0.0.0", "10.0.0.1:9101", True), ("0.0.0.0", "worker:9101", True),
        ("0.0.0.0", "worker.ns.svc.cluster.local", True), ("0.0.0.0", "evil.example", False),
        ("0.0.0.0", "10.0.0.1.evil.example", False), ("metrics.example", "metrics.example", True),
    ],
)  # fmt: skip
def test_a_workers_metrics_are_read_by_its_own_names_alone(
    bound: str, host: str, own: bool
) -> None:
    assert _is_own_name(host, bound, ["given.example"]) is own


def test_a_worker_answers_prometheus_and_logs_json(tmp_path: Path) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        ev.add("note", "alpha", id="1")
        port, log = free_port(), tmp_path / "log"
        with log.open("wb") as out:
            worker = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "evervec",
                    "--log-json",
                    "worker",
                    "--metrics-port",
                    str(port),
                ],
                cwd=tmp_path,
                env={**os.environ, "EVERVEC_EMBEDDER": "hashing"},
                stderr=out,
            )
        try:
            until(lambda: ev.queue.stats().done == 1)
            url = f"http://127.0.0.1:{port}/metrics"
            text = httpx.get(url).text
            rebound = httpx.get(url, headers={"Host": "evil.example"})
            assert (rebound.status_code, "evervec" in rebound.text) == (403, False)
        finally:
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(30) == 0
    assert value(text, "evervec_store_up") == 1
    assert value(text, "evervec_workers") == 1
    assert value(text, "evervec_attempts_total", outcome="done") == 1
    logged = [line for line in log.read_text().splitlines() if line.startswith("{")]
    assert all(json.loads(line)["level"] for line in logged)


def test_from_the_clients_add_to_the_index_is_one_trace(served: Served) -> None:
    key = served.key()
    with traced() as traces:
        with (
            evervec.Client(served.url, key) as client,
            traces.tracer.start_as_current_span("the application"),
        ):
            client.add("note", "Tea is grown on hills.", id="tea", wait=30)
        until(lambda: {"evervec job", "POST /v1/records"} <= traces.spans.keys())
        assert traces.above("evervec write") == [
            "evervec write", "evervec job", "POST /v1/records", "the application",
        ]  # fmt: skip
        assert len(traces.ids) == 1
