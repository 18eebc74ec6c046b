"""How often an agent may ask: here, and across processes through Redis."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import evervec
from evervec import Evervec
from evervec.server.keys import Keys
from evervec.server.rate_limits import MemoryLimiter, RedisLimiter
from support.processes import until
from support.redis import RedisServer
from support.service import Serve, ServiceProcess
from support.world import Clock


def test_who_asks_too_often_is_told_when_to_come_again(ev: Evervec, serve: Serve) -> None:
    clock = Clock()
    served = serve(ev, limiter=MemoryLimiter(rate=0.5, burst=2, clock=clock))
    http = served.http(served.key(agent="one"))
    answers = [http.get("/v1/records") for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    assert answers[0].headers["ratelimit-policy"] == '"agent";q=2;w=4'
    assert answers[0].headers["ratelimit"] == '"agent";r=1;t=2'
    refused = answers[2]
    assert refused.json()["error"] == "rate limit exceeded"
    assert (refused.headers["retry-after"], refused.headers["ratelimit"]) == (
        "2",
        '"agent";r=0;t=2',
    )
    assert refused.headers["content-type"] == "application/problem+json"
    assert served.http(served.key(agent="two")).get("/v1/records").status_code == 200
    assert served.http(served.key("other", agent="one")).get("/v1/records").status_code == 200
    clock.move(2)
    assert http.get("/v1/records").status_code == 200


def test_admins_and_open_paths_pass(ev: Evervec, serve: Serve) -> None:
    served = serve(ev, limiter=MemoryLimiter(rate=0.01, burst=1))
    admin = served.http(served.key(role="admin"))
    assert {admin.get("/v1/records").status_code for _ in range(5)} == {200}
    writer = served.http(served.key())
    assert [writer.get("/v1/jobs").status_code for _ in range(2)] == [200, 429]
    assert {writer.get("/healthz").status_code for _ in range(5)} == {200}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


def test_two_processes_share_one_limit(redis: RedisServer, tmp_path: Path) -> None:
    """What both let pass together is what one bucket gains, by Redis's own clock."""
    rate, burst = 10, 60
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        key = Keys(ev.store).create("acme", "one", "reader").key
    environ: dict[str, Any] = {
        "EVERVEC_REDIS_URL": redis.url, "EVERVEC_RATE_PER_SECOND": str(rate),
        "EVERVEC_RATE_BURST": str(burst),
    }  # fmt: skip
    services = [
        ServiceProcess(tmp_path, "--workers-inside", "0", wait=False, **environ) for _ in range(2)
    ]
    answers: list[int] = []
    stop = threading.Event()

    def ask(url: str) -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=20) as http:
            while not stop.is_set():
                answers.append(http.get(f"{url}/v1/jobs/1").status_code)

    def ask_until(status: int, url: str) -> None:
        with httpx.Client(headers={"Authorization": f"Bearer {key}"}, timeout=20) as http:
            until(lambda: http.get(f"{url}/v1/jobs/1").status_code == status)

    try:
        for service in services:
            service.until_alive()
        ask_until(429, services[0].url)  # the burst is spent
        bucket = "evervec:limit:org:acme:agent:one"
        held, began = redis.bucket(bucket)
        threads = [threading.Thread(target=ask, args=(service.url,)) for service in services * 2]
        for thread in threads:
            thread.start()
        until(lambda: len(answers) - answers.count(429) > 2 * rate)
        stop.set()
        for thread in threads:
            thread.join()
        passed = len(answers) - answers.count(429)
        left, ended = redis.bucket(bucket)
        allowed = held + rate * (ended - began) - left
        assert abs(passed - allowed) <= 0.02 * allowed, (passed, allowed)
    finally:
        for service in services:
            service.close()


def test_without_redis_requests_pass_and_are_counted_until_it_is_back(
    redis: RedisServer, ev: Evervec, serve: Serve
) -> None:
    limiter = RedisLimiter(redis.url, rate=0.01, burst=3)
    served = serve(ev, limiter=limiter)
    http, admin = served.http(served.key()), served.http(served.key(role="admin"))
    assert [http.get("/v1/jobs").status_code for _ in range(4)] == [200, 200, 200, 429]
    redis.kill()
    began = time.monotonic()
    assert {http.get("/v1/jobs").status_code for _ in range(20)} == {200}
    assert time.monotonic() - began < 10
    assert limiter.errors >= 20
    assert f"evervec_limiter_errors_total {limiter.errors}.0" in admin.get("/metrics").text
    redis.start()
    until(lambda: http.get("/v1/jobs").status_code == 429, "the limit to be applied again")
