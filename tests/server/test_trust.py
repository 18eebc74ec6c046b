"""Whom the service trusts: without keys this machine alone; proxies that were named; nobody's Host."""

import asyncio
import http.server
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

import evervec
from evervec import Evervec, SettingsError
from evervec.server.app import make_app
from evervec.server.keys import Keys
from evervec.server.origin import Proxies, is_local, is_mounted, own_address
from evervec.server.requests import Scope
from support.looptime import ask, running
from support.service import Serve, Served

HERE = {"host": "127.0.0.1:8080"}


def scope(client: str | None = "127.0.0.1", headers: Any = HERE, **more: Any) -> Scope:
    pairs = headers.items() if isinstance(headers, dict) else headers
    found = {
        "type": "http",
        "http_version": "1.1",
        "client": client and (client, 5000),
        "headers": [(name.lower().encode(), value.encode()) for name, value in pairs],
        "root_path": "",
        **more,
    }
    return {**found, "mounted": is_mounted(found)}


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_programs_on_this_machine_are_local(peer: str) -> None:
    assert is_local(scope(peer))


@pytest.mark.parametrize(
    "peer", [None, "", "203.0.113.9", "testclient", "::ffff:203.0.113.9", "10.0.0.1"]
)
def test_the_socket_decides_whatever_the_host_header_says(peer: str | None) -> None:
    assert not is_local(scope(peer, {"host": "localhost"}))


@pytest.mark.parametrize(
    "name",
    [
        "Forwarded", "Via", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
        "X-Forwarded-Anything", "X-Real-IP", "CF-Connecting-IP", "CF-Connecting-IPv6",
        "True-Client-IP", "X-Client-IP", "Fly-Client-IP", "X-Vercel-Forwarded-For",
        "X-Original-Forwarded-For", "X-Envoy-External-Address", "CDN-Loop",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["127.0.0.1", ""])
def test_what_was_passed_on_is_not_local(name: str, value: str) -> None:
    assert not is_local(scope(headers={**HERE, name: value}))


@pytest.mark.parametrize(
    "more",
    [
        {"root_path": "/search"},
        {"endpoint": object()},  # another Starlette application, mounted at its root
        {"app_root_path": ""},
        {"http_version": "1.0"},  # as nginx asks unless told otherwise
        {"headers": {"host": "127.0.0.1", "sec-fetch-site": "cross-site"}},
        {"headers": {"host": "127.0.0.1", "sec-fetch-site": "same-site"}},
        {"headers": {"host": "127.0.0.1", "origin": "null"}},
        {
            "headers": [
                ("host", "127.0.0.1"),
                ("origin", "http://localhost"),
                ("origin", "http://x"),
            ]
        },
        {"headers": {"host": "127.0.0.1.evil.example"}},
        {"headers": {}},
    ],
)
def test_mounted_proxied_or_asked_by_a_page_it_is_not_local(more: dict[str, Any]) -> None:
    assert not is_local(scope(**more))


def test_a_remote_peer_is_refused_by_an_application_that_serves_itself(ev: Evervec) -> None:
    async def ask() -> list[int]:
        transport = httpx.ASGITransport(app=make_app(ev), client=("203.0.113.9", 55555))
        async with httpx.AsyncClient(transport=transport, base_url="http://public.example") as c:
            here = {"Host": "localhost"}
            record = {"kind": "n", "id": "1", "text": "owned"}
            return [
                (await c.get("/v1/records")).status_code,
                (await c.get("/v1/records", headers=here)).status_code,
                (await c.post("/v1/records", json=record, headers=here)).status_code,
                (await c.post("/internal/dispatch", headers=here)).status_code,
            ]

    assert asyncio.run(ask()) == [403, 403, 403, 401]
    assert ev.records() == []


@pytest.mark.parametrize("path", ["", "/search"])
def test_mounted_in_another_application_it_needs_keys(ev: Evervec, path: str) -> None:
    outer = FastAPI()
    outer.mount(path, make_app(ev))
    client = ("127.0.0.1", 50000)
    with TestClient(outer, base_url="http://127.0.0.1", client=client) as http:
        assert http.get(f"{path}/v1/records").status_code == 403
        assert http.post(f"{path}/internal/dispatch").status_code == 401


def test_who_says_so_may_leave_it_open(serve: Serve) -> None:
    with evervec.open("memory:", embedder="hashing", open_without_keys=True) as ev:
        served = serve(ev)
        passed_on = {"X-Forwarded-For": "203.0.113.9", "Host": "public.example"}
        assert served.http().get("/v1/records", headers=passed_on).status_code == 200
        served.key()
        assert served.http().get("/v1/records", headers=passed_on).status_code == 401
        served.close()


def test_the_client_is_the_last_address_that_no_trusted_proxy_has() -> None:
    proxies = Proxies("10.0.0.0/8, 192.0.2.7")

    def client(peer: str | None, *forwarded: str) -> str:
        return proxies.client_of(scope(peer, [("x-forwarded-for", one) for one in forwarded]))

    assert client("10.1.2.3", "198.51.100.1") == "198.51.100.1"
    assert client("10.1.2.3", "1.2.3.4, 198.51.100.1, 192.0.2.7") == "198.51.100.1"
    assert client("10.1.2.3", "1.2.3.4", "198.51.100.1") == "198.51.100.1"  # two headers
    assert client("203.0.113.9", "198.51.100.1") == "203.0.113.9"  # not a proxy of ours
    assert client("::ffff:10.1.2.3", "2001:db8::1") == "2001:db8::1"
    assert client("10.1.2.3") == "10.1.2.3"
    assert client("10.1.2.3", "198.51.100.1, unknown") == "10.1.2.3"
    assert client("10.1.2.3", "10.0.0.9") == "10.0.0.9"
    assert client(None, "198.51.100.1") == ""
    assert client("10.1.2.3", "1.2.3.4, 198.51.100.1:5060") == "198.51.100.1"
    assert client("10.1.2.3", "[2001:db8::1]:5060, 10.0.0.9:80") == "2001:db8::1"
    assert client("10.1.2.3", "198.51.100.1:x:y]") == "10.1.2.3"


def test_a_proxy_that_is_no_address_is_refused_when_the_service_starts(ev: Evervec) -> None:
    with pytest.raises(SettingsError, match="trusted_proxies"):
        Proxies("proxy.example")


def test_requests_of_one_client_behind_a_proxy_are_bounded(serve: Serve) -> None:
    settings: dict[str, Any] = {"trusted_proxies": "127.0.0.1", "server_client_connections": 1}
    with evervec.open("memory:", embedder="hashing", **settings) as ev:
        served = serve(ev)
        key = served.key()

        def post(client: str, wait: int) -> int:
            headers = {"X-Forwarded-For": client, "Prefer": f"wait={wait}"}
            body = {"kind": "n", "text": "x", "delay": 1000}
            return served.http(key).post("/v1/records", json=body, headers=headers).status_code

        answered: list[int] = []
        first = threading.Thread(target=lambda: answered.append(post("198.51.100.1", 30)))
        first.start()
        while not ev.records():
            pass
        assert post("198.51.100.2", 0) == 202
        assert post("198.51.100.1", 0) == 429
        served.app.state.service.stopping.set()
        first.join()
        assert answered == [202]
        served.close()


@pytest.fixture
def thief() -> Iterator[tuple[int, list[Any]]]:
    """A port of this machine that somebody else listens on, and what came there."""
    seen: list[Any] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append((self.path, dict(self.headers)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port, seen
        server.shutdown()
        thread.join()


def test_jobs_go_to_the_services_own_address_never_to_the_host_header(
    ev: Evervec, serve: Serve, thief: tuple[int, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SECRET", "secret")
    monkeypatch.setenv("CRON_SECRET", "tick")
    port, seen = thief
    served = serve(ev)
    ev.add("note", "alpha", id="1")
    for host in (f"127.0.0.1:{port}", f"127.0.0.1:{port}/any?q=", f"x@127.0.0.1:{port}"):
        headers = {"Host": host, "x-cron-secret": "tick", "X-Forwarded-Host": host}
        served.http().post("/internal/dispatch", headers=headers)
    assert seen == []
    assert ev.queue.stats().done == 1


@pytest.mark.parametrize("name", ["CRON_SECRET", "WORKER_SECRET", "QSTASH_NEXT_SIGNING_KEY", None])
def test_internal_paths_are_shut_as_soon_as_any_key_or_secret_exists(
    ev: Evervec, serve: Serve, name: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(ev)
    delivery = {"json": {"job_id": 1, "token": "none"}}
    assert _statuses(served, **delivery) == (200, 200)
    if name:
        monkeypatch.setenv(name, "x" * 40)
    else:
        served.key()
    assert _statuses(served, **delivery) == (401, 401)


def _statuses(served: Served, **delivery: Any) -> tuple[int, int]:
    client = served.http()
    return (
        client.post("/internal/dispatch").status_code,
        client.post("/internal/worker", **delivery).status_code,
    )


def test_the_own_address_is_the_sockets() -> None:
    assert own_address(scope(server=("127.0.0.1", 80))) == "http://127.0.0.1:80"
    assert own_address(scope(server=("::1", 80))) == "http://[::1]:80"
    assert own_address(scope(server=("evil.example", 80))) is None
    assert own_address(scope(server=("/run/socket", None))) is None
    assert own_address(scope(server=None)) is None


@pytest.mark.parametrize("path", ["/v1/queue/stats/", "/healthz/", "/ui/jobs/"])
def test_no_answer_leads_to_the_host_that_a_request_names(ev: Evervec, path: str) -> None:
    """Nor to `http`, where a proxy ended TLS: a client would send its key there."""
    key = Keys(ev.store).create("default", "a", "reader").key
    app = make_app(ev)
    with running(app) as runner:
        status, _ = runner.run(ask(app, "GET", path, key, host="elsewhere"))
    assert status == 404
