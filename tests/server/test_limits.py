"""How often an agent may ask: here, and across processes through Redis."""

import json
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
from evervec.server.shares import Shares
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


def test_a_tenant_beyond_its_share_is_refused_while_the_event_loop_lags(
    ev: Evervec, serve: Serve
) -> None:
    served = serve(ev)
    shares: Any = served.app.state.service.shares
    shares._clock = clock = Clock(1000.0)
    Shares.report_lag(shares, 1.0)
    greedy, other = served.http(served.key("greedy")), served.http(served.key("other"))
    assert other.get("/v1/records").status_code == 200
    answers = [greedy.get("/v1/records") for _ in range(101)]
    assert [answer.status_code for answer in answers] == [200] * 100 + [429]
    refused = answers[-1]
    assert (refused.json()["error"], refused.headers["retry-after"]) == (
        "more than its share",
        "1",
    )
    assert other.get("/v1/records").status_code == 200
    clock.move(3)
    assert greedy.get("/v1/records").status_code == 200


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path)
    yield server
    server.close()


def test_two_processes_share_one_limit(redis: RedisServer, tmp_path: Path) -> None:
    """What both let pass together is what one bucket gains, by Redis's own clock."""
    rate, burst = 20, 60
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
        until(lambda: len(answers) - answers.count(429) > rate)
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


def test_the_bytes_of_an_answer_are_taken_from_the_limit(ev: Evervec, serve: Serve) -> None:
    ev.add("note", "x" * 1_000_000, id="long")
    served = serve(ev, limiter=MemoryLimiter(rate=1, burst=50, clock=Clock()))
    reader = served.http(served.key(role="reader"))
    for left in (49, 33, 17, 1):
        answer = reader.get("/v1/records/note/long")
        assert answer.headers["ratelimit"].startswith(f'"agent";r={left};')
    refused = reader.get("/v1/records")
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) == 15
    admin = served.http(served.key(role="admin"))
    assert {admin.get("/v1/records/note/long").status_code for _ in range(5)} == {200}


def test_the_tickets_of_a_batch_cost_nothing(ev: Evervec, serve: Serve) -> None:
    served = serve(ev, limiter=MemoryLimiter(rate=1, burst=3, clock=Clock()))
    http = served.http(served.key())
    line = json.dumps({"kind": "note", "id": "same", "text": "tea"}) + "\n"
    headers = {"Content-Type": "application/x-ndjson"}
    answer = http.post("/v1/records/batch", content=line * 2000, headers=headers)
    assert len(answer.content) > 2 * 65_536
    assert http.get("/v1/records").headers["ratelimit"].startswith('"agent";r=1;')


def test_a_record_named_as_a_batch_is_charged(ev: Evervec, serve: Serve) -> None:
    ev.add("note", "x" * 1_000_000, id="a/batch")
    served = serve(ev, limiter=MemoryLimiter(rate=1, burst=5, clock=Clock()))
    http = served.http(served.key())
    assert [http.get("/v1/records/note/a%2Fbatch").status_code for _ in range(2)] == [200, 429]


def test_what_is_charged_later_is_shared_through_redis(redis: RedisServer) -> None:
    one, two = (RedisLimiter(redis.url, rate=10, burst=20) for _ in range(2))
    try:
        assert one.allow("a")
        two.charge("a", 100_000)
        assert 55 < one.allow("a").retry_after <= 60.1
        assert one.allow("b")
        redis.close()
        two.charge("a", 5)
        assert two.errors == 1
    finally:
        one.close()
        two.close()
