"""Requests end in time, take turns, and are refused when there are too many."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import evervec
from evervec import Evervec
from evervec.server import deadlines
from evervec.server.background import Drain
from evervec.server.dashboard.paths import SIGN_IN
from support.processes import until
from support.service import Serve, Served
from support.world import PATIENCE

ENDLESS = (
    "with recursive n(i) as (select 1 union all select i + 1 from n where i > 0) "
    "select count(*) from n"
)
SEARCH = {"query": "endless", "mode": "text"}


def make_searches_endless(ev: Evervec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those for the word "endless", inside the engine."""
    store: Any = ev.store
    plain = store.records.search_text

    def search_text(tenant: str, kind: object, query: str, *rest: object) -> object:
        if query == "endless":
            with store.db.reading() as conn:
                return conn.execute(ENDLESS).fetchall()
        return plain(tenant, kind, query, *rest)

    monkeypatch.setattr(store.records, "search_text", search_text)


@pytest.fixture
def slow(ev: Evervec, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Served:
    """A service without a worker, some of whose searches never end."""
    make_searches_endless(ev, monkeypatch)
    return serve(ev)


def pool(served: Served) -> Any:
    return served.app.state.service.pool


@contextmanager
def asking(served: Served, key: str, count: int, body: Any = None) -> Iterator[list[socket.socket]]:
    """Searches that nobody has answered yet, each on a connection of its own."""
    at = urlsplit(served.url)
    content = json.dumps(body or SEARCH).encode()
    head = (
        f"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    )
    opened = []
    try:
        for _ in range(count):
            opened.append(socket.create_connection((at.hostname or "", at.port or 0)))
            opened[-1].sendall(head.encode() + content)
        yield opened
    finally:
        for connection in opened:
            connection.close()


def test_a_query_ends_with_its_request_and_frees_its_thread(slow: Served) -> None:
    http = slow.http(slow.key())
    ended = http.post("/v1/search", json=SEARCH, headers={"Request-Timeout": "0.2"})
    assert ended.status_code == 504
    assert ended.json()["type"] == "urn:evervec:DeadlineExceeded"
    assert "deadline of 0.2 s" in ended.json()["detail"]
    assert "Request-Timeout" in ended.json()["detail"]
    until(lambda: pool(slow).running == 0)
    assert http.post("/v1/search", json={"query": "tea"}).status_code == 200


def test_a_request_without_a_timeout_has_the_services(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evervec.open(
        tmp_path / "store.db", embedder="hashing", server_seconds=0.2, server_most_seconds=0.3
    ) as ev:
        make_searches_endless(ev, monkeypatch)
        http = serve(ev).http()
        ended = http.post("/v1/search", json=SEARCH)
        assert (ended.status_code, "0.2 s" in ended.json()["detail"]) == (504, True)
        capped = http.post("/v1/search", json=SEARCH, headers={"Request-Timeout": "1e9"})
        assert (capped.status_code, "0.3 s" in capped.json()["detail"]) == (504, True)


@pytest.mark.parametrize("given", ["", "0", "-1", "nan", "inf", "soon", "1e999", "9" * 5000])
def test_a_timeout_that_is_none_is_refused(slow: Served, given: str) -> None:
    refused = slow.http().get("/v1/records", headers={"Request-Timeout": given})
    assert refused.status_code == 422
    assert "Request-Timeout" in refused.json()["detail"]


def test_a_client_that_is_gone_ends_its_query(slow: Served) -> None:
    with asking(slow, slow.key(), 3):
        until(lambda: pool(slow).running == 3)
    until(lambda: pool(slow).running == 0)
    until(lambda: not slow.app.state.service.calls)


def test_a_client_that_is_gone_ends_its_wait(served: Served) -> None:
    key = served.key()
    http = served.http(key)
    saved = http.post(
        "/v1/records", json={"kind": "note", "id": "1", "text": "tea", "delay": 1000}
    ).json()
    ticket = {name: saved[name] for name in ("kind", "id", "job_id", "seq")}
    with asking(served, key, 2, {"query": "tea", "after": ticket, "wait": 250}):
        until(lambda: len(served.app.state.service.calls) == 2)
    until(lambda: not served.app.state.service.calls)


def test_slow_searches_of_one_tenant_leave_threads_for_others(slow: Served) -> None:
    evil, victim = slow.key("evil", "reader"), slow.http(slow.key("victim"))
    with asking(slow, evil, 40):
        until(lambda: pool(slow).running == 8)
        for path in ("/healthz", "/readyz"):
            assert slow.http().get(path).status_code == 200
        for n in range(5):
            body = {"kind": "note", "id": str(n), "text": "tea"}
            assert victim.post("/v1/records", json=body).status_code == 202
            assert victim.post("/v1/search", json={"query": "tea"}).status_code == 200
        assert pool(slow).running >= 8


def test_work_that_cannot_be_interrupted_holds_no_request(
    slow: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(ev.store.records, "get", lambda *_: release.wait(PATIENCE))
    monkeypatch.setattr(deadlines, "_GRACE", 0.05)
    try:
        ended = slow.http().get("/v1/records/note/1", headers={"Request-Timeout": "0.1"})
        assert (ended.status_code, pool(slow).running) == (504, 1)
        assert "may still be made" in ended.json()["detail"]
    finally:
        release.set()
    until(lambda: pool(slow).running == 0)


def test_an_add_that_was_not_begun_in_time_is_never_done(
    slow: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, release, save = threading.Event(), threading.Event(), ev.store.changes.save

    def waits(*args: Any) -> Any:
        held.set()
        assert release.wait(PATIENCE)
        return save(*args)

    monkeypatch.setattr(ev.store.changes, "save", waits)
    http = slow.http()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(http.post, "/v1/records", json={"kind": "note", "text": "a", "id": "1"})
        assert held.wait(PATIENCE)
        late = slow.http().post(
            "/v1/records",
            json={"kind": "note", "text": "b", "id": "2"},
            headers={"Request-Timeout": "0.1"},
        )
        release.set()
        assert first.result().status_code == 202
    assert late.status_code == 504
    assert "nothing was done" in late.json()["detail"]
    assert http.get("/v1/records/note/2").status_code == 404


def test_a_saved_record_is_acknowledged_though_the_wait_outlives_the_deadline(
    slow: Served,
) -> None:
    saved = slow.http().post(
        "/v1/records",
        json={"kind": "note", "id": "1", "text": "tea"},
        headers={"Prefer": "wait=60", "Request-Timeout": "0.3", "Idempotency-Key": "k"},
    )
    assert (saved.status_code, saved.json()["status"]) == (202, "pending")


def test_a_saved_record_is_acknowledged_though_the_store_hangs_in_the_wait(
    slow: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(ev.store.jobs, "settled", lambda _: release.wait(PATIENCE))
    monkeypatch.setattr(deadlines, "_GRACE", 0.05)
    try:
        saved = slow.http().post(
            "/v1/records",
            json={"kind": "note", "id": "1", "text": "tea"},
            headers={"Prefer": "wait=60", "Request-Timeout": "0.3"},
        )
        assert (saved.status_code, saved.json()["status"]) == (202, "pending")
    finally:
        release.set()


def test_a_wait_gets_time_of_its_own(tmp_path: Path, serve: Serve) -> None:
    with evervec.open(tmp_path / "store.db", embedder="hashing", server_seconds=0.2) as ev:
        http = serve(ev).http()
        body = {"kind": "note", "id": "1", "text": "tea"}
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(http.post, "/v1/records", json=body, headers={"Prefer": "wait=60"})
            until(lambda: ev.queue.stats().pending == 1)
            threading.Event().wait(0.5)  # past the deadline of the request without its wait
            ev.process_all()
            assert (waits.result().status_code, waits.result().json()["status"]) == (201, "done")


def test_too_many_requests_are_refused_at_once(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evervec.open(
        tmp_path / "store.db", embedder="hashing", server_requests=3, server_tenant_requests=2
    ) as ev:
        make_searches_endless(ev, monkeypatch)
        served = serve(ev)
        keys = {tenant: served.key(tenant) for tenant in "abc"}
        in_progress = served.app.state.service.in_progress
        with asking(served, keys["a"], 2), asking(served, keys["b"], 1):
            until(lambda: in_progress.total() == 3)
            own = served.http(keys["a"]).get("/v1/records")
            assert (own.status_code, own.headers["retry-after"]) == (429, "1")
            assert "server_tenant_requests" in own.json()["detail"]
            other = served.http(keys["c"]).get("/v1/records")
            assert (other.status_code, other.headers["retry-after"]) == (503, "1")
            assert "server_requests" in other.json()["detail"]
            assert served.http().get("/healthz").status_code == 200
        until(lambda: not in_progress)
        good = served.http(keys["a"]).get("/v1/records")
        assert (good.status_code, good.headers["concurrent-requests-remaining"]) == (200, "1")
        metrics = served.http(served.key("ops", "admin")).get("/metrics").text
        assert 'evervec_refused_requests_total{bound="tenant"}' in metrics
        assert "evervec_requests_running" in metrics


def test_a_service_that_stops_breaks_off_what_does_not_end(slow: Served, ev: Evervec) -> None:
    service = slow.app.state.service
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(slow.http().post, "/v1/search", json=SEARCH) for _ in range(4)]
        until(lambda: pool(slow).running == 4)
        loop = slow.app.state.background._tasks[0].get_loop()
        loop.call_soon_threadsafe(service.abort_requests)
        answers = [one.result() for one in asked]
    assert {answer.status_code for answer in answers} == {503}
    assert {answer.headers["retry-after"] for answer in answers} == {"1"}
    until(lambda: pool(slow).running == 0)


def test_the_process_ends_when_the_time_to_drain_is_over(slow: Served, ev: Evervec) -> None:
    left, codes = threading.Event(), []

    def leave(code: int) -> None:
        codes.append(code)
        left.set()

    app = slow.app
    drain = Drain(app.state.service, app.state.background, whole_process=True, leave=leave)
    with asking(slow, slow.key(), 1):
        until(lambda: pool(slow).running == 1)
        loop = slow.app.state.background._tasks[0].get_loop()
        loop.call_soon_threadsafe(drain.begin)
        loop.call_soon_threadsafe(drain.begin)  # the second signal: at once
        assert left.wait(PATIENCE)
    assert codes == [0]


# bodies
def trickled(served: Served, path: str, key: str, *headers: str) -> socket.socket:
    """A request whose body begins and does not go on."""
    at = urlsplit(served.url)
    media = "x-ndjson" if "batch" in path else "json"
    lines = [
        f"POST {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {key}",
        f"Content-Type: application/{media}", *headers, "", '8\r\n{"kind":\r\n' if "Transfer-Encoding: chunked" in headers else '{"kind":',
    ]  # fmt: skip
    conn = socket.create_connection((at.hostname or "", at.port or 0), PATIENCE)
    conn.sendall("\r\n".join(lines).encode())
    return conn


def answered(conn: socket.socket) -> bytes:
    """All that is sent until the connection is closed."""
    data = b""
    while part := conn.recv(65536):
        data += part
    return data


@pytest.mark.usefixtures("brief_linger")
@pytest.mark.parametrize("path", ["/v1/records", "/v1/search", "/v1/queue/purge", "/mcp"])
@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_in_time_ends_its_request(
    slow: Served, path: str, length: str
) -> None:
    key = slow.key(role="admin")
    with closing(trickled(slow, path, key, length, "Request-Timeout: 0.2")) as conn:
        said = answered(conn)
    assert said.startswith(b"HTTP/1.1 408")
    assert b"deadline of 0.2 s (Request-Timeout, server_seconds)" in said
    assert b"connection: close" in said.lower()
    until(lambda: not slow.app.state.service.calls)
    assert not slow.app.state.service.in_progress


@pytest.mark.usefixtures("brief_linger")
def test_a_body_without_a_timeout_has_the_services_and_a_longer_one_more(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evervec.open(tmp_path / "store.db", embedder="hashing", server_seconds=0.3) as ev:
        served = serve(ev)
        key = served.key()
        with closing(trickled(served, "/v1/records", key, "Content-Length: 1000")) as conn:
            assert answered(conn).startswith(b"HTTP/1.1 408")
        monkeypatch.setattr(deadlines, "_BODY_RATE", 10)
        text = '{"kind": "note", "text": "tea"}'
        length = f"Content-Length: {len(text)}"
        with closing(trickled(served, "/v1/records", key, length)) as conn:
            began = time.monotonic()
            until(lambda: time.monotonic() > began + 0.6)  # as long as its first bytes allow
            conn.sendall(text[8:].encode())
            assert b" 202 " in conn.recv(65536).splitlines()[0]


@pytest.mark.usefixtures("brief_linger")
def test_a_batch_has_the_whole_time_for_each_part_and_no_more(tmp_path: Path, serve: Serve) -> None:
    line = b'{"kind":"note","text":"tea"}\n'
    with evervec.open(tmp_path / "store.db", embedder="hashing", server_seconds=0.4) as ev:
        served = serve(ev)
        batch = "/v1/records/batch?kind=note", served.key(), "Content-Length: 1000"
        with closing(trickled(served, *batch)) as conn:
            conn.sendall(line[8:])
            for count in range(2, 5):
                until(lambda least=count - 1: len(ev.records()) >= least)  # type: ignore[misc]
                began = time.monotonic()
                until(lambda since=began: time.monotonic() > since + 0.25)  # type: ignore[misc]
                conn.sendall(line)
            said = answered(conn)
        assert said.startswith(b"HTTP/1.1 200")
        assert said.count(b'"job_id"') == 4
        assert b'"status": 408' in said
        assert b'"position": 4' in said
        until(lambda: not served.app.state.service.calls)


@pytest.mark.usefixtures("brief_linger")
def test_a_service_that_stops_waits_for_no_body(slow: Served) -> None:
    service = slow.app.state.service
    with closing(trickled(slow, "/v1/records", slow.key(), "Content-Length: 1000")) as conn:
        until(lambda: any(call._receiving for call in service.calls))
        loop = slow.app.state.background._tasks[0].get_loop()
        loop.call_soon_threadsafe(service.abort_requests)
        assert answered(conn).startswith(b"HTTP/1.1 503")


@pytest.mark.parametrize("path", [SIGN_IN, "/ui/records", "/"])
def test_a_page_says_that_its_deadline_is_over(
    slow: Served, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a key too: an error for each such request would fill the log."""
    headers = {"Request-Timeout": "5e-324", "Accept": "text/html"}
    ended = slow.http().get(path, headers=headers)
    assert (ended.status_code, "deadline" in ended.text) == (504, True)
    assert "failed" not in caplog.text
