"""Connections: how many, how large their heads, and how long they may keep the service waiting."""

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

import evervec
from evervec.server import serve as running
from evervec.server.keys import Keys
from evervec.server.origin import client_network
from support.processes import until
from support.service import Serve, Served, ServiceProcess

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
Make = Callable[..., Served]


@pytest.fixture
def made(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Services over stores in memory, with settings."""
    monkeypatch.setattr(running, "_TICKS_A_SWEEP", 1)
    opened = []

    def make(**settings: Any) -> Served:
        ev = evervec.open("memory:", embedder="hashing", **settings)
        opened.append(ev)
        return serve(ev)

    yield make
    for ev in opened:
        ev.close()


class Clock:
    """Time of connections, as far as the test has moved it."""

    def __init__(self, served: Served) -> None:
        self.now = time.monotonic()
        served.connections.clock = lambda: self.now
        served.connections._swept = self.now

    def move(self, seconds: float) -> None:
        self.now += seconds


def connect(served: Served, sent: bytes = b"") -> socket.socket:
    port = int(served.url.rpartition(":")[2])
    found = socket.create_connection(("127.0.0.1", port), 20)
    found.sendall(sent)
    return found


def answer(conn: socket.socket) -> tuple[int, str]:
    """The status and body of an answer that is the connection's last; 0 for a closed one."""
    data = b""
    try:
        while part := conn.recv(65536):
            data += part
    except ConnectionResetError:
        pass
    head, _, body = data.partition(b"\r\n\r\n")
    return (int(head.split()[1]) if head else 0), body.decode()


def sent_until_cut(conn: socket.socket) -> int:
    sent = 0
    with suppress(OSError):
        while sent < 1 << 29:
            sent += conn.send(b"a" * 65536)
    return sent


def one_answer(conn: socket.socket) -> bytes:
    """The next answer, whole, on a connection that stays open."""
    data = b""
    while b"\r\n\r\n" not in data and (part := conn.recv(65536)):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length and len(body) < int(length[1]) and (part := conn.recv(65536)):
        body += part
    return head


@pytest.mark.parametrize(
    ("head", "status", "names"),
    [
        (GET + b"X: " + b"a" * 40_000 + b"\r\n\r\n", 431, "server_header_kb"),
        (GET + b"X: " + b"a" * 40_000, 431, "server_header_kb"),  # without an end
        (GET + b"".join(b"X%d: a\r\n" % n for n in range(120)) + b"\r\n", 431, "server_headers"),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n\r\n", 414, "server_header_kb"),
        (b"GET /" + b"a" * 400_000, 431, "server_header_kb"),
        (b"\r\n" * 40_000, 431, "server_header_kb"),
        (b"nonsense\r\n\r\n", 400, "HTTP"),
    ],
)
def test_a_head_is_bounded_however_it_is_too_large(
    made: Make, head: bytes, status: int, names: str
) -> None:
    with closing(connect(made(), head)) as conn:
        found, body = answer(conn)
    assert found == status
    assert names in json.loads(body)["detail"]


def test_an_endless_head_is_cut_after_little_more_than_its_bound(made: Make) -> None:
    with closing(connect(made(), GET + b"X: ")) as conn:
        sent = sent_until_cut(conn)
    assert sent < 1 << 25  # the bound, what is read after it, and the kernel's own buffers


@pytest.mark.parametrize("rest", [b"X: " + b"a" * 400_000, b"1;" + b"e" * 400_000])
def test_trailers_and_chunk_extensions_are_bounded_too(made: Make, rest: bytes) -> None:
    served = made()
    head = b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    begun = b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n"
    last = b"0\r\n" if rest.startswith(b"X") else b""
    with closing(connect(served, head + begun + last + rest)) as conn:
        assert answer(conn)[0] == 431


def test_trailers_are_no_headers(made: Make) -> None:
    served = made()
    served.key()
    head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    key = served.key(role="reader").encode()
    body = b'Transfer-Encoding: chunked\r\n\r\n10\r\n{"query": "tea"}\r\n0\r\n'
    trailer = b"Authorization: Bearer " + key + b"\r\n\r\n"
    with closing(connect(served, head + body + trailer)) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 401")


def test_silent_and_idle_connections_are_closed(made: Make) -> None:
    served = made()
    clock = Clock(served)
    silent, idle = connect(served), connect(served, GET + b"\r\n")
    blank = connect(served, b"\r\n")
    with closing(silent), closing(idle), closing(blank):
        assert one_answer(idle).startswith(b"HTTP/1.1 200")
        until(lambda: len(served.connections) >= 3)
        clock.move(31)
        assert answer(silent) == (0, "")
        assert answer(blank) == (0, "")
        assert answer(idle) == (0, "")
    until(lambda: len(served.connections) == 0)


@pytest.mark.parametrize(
    "sent",
    [
        GET + b"X-Slow: a",
        POST + b'Content-Length: 1000\r\n\r\n{"kind":',
    ],
)
def test_half_a_head_and_half_a_body_end_with_408(made: Make, sent: bytes) -> None:
    served = made()
    clock = Clock(served)
    with closing(connect(served, sent)) as conn:
        until(lambda: bool(len(served.connections)))
        until(lambda: any(c._unparsed or not c._complete for c in served.connections._groups))  # type: ignore[attr-defined]
        clock.move(31)
        status, body = answer(conn)
    assert status == 408
    assert "server_body_rate" in json.loads(body)["detail"]


def test_a_body_may_take_long_if_it_keeps_the_rate_and_not_if_it_trickles(made: Make) -> None:
    served = made(server_body_rate=1000)
    clock = Clock(served)
    head = b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    head += b"Content-Length: 1000000\r\n\r\n"
    steady, slow = connect(served, head), connect(served, head)
    with closing(steady), closing(slow):
        until(lambda: _busy(served) == 2)
        for turn in range(4):
            steady.sendall(b" " * 20_000)
            if turn < 2:
                slow.sendall(b" ")
            until(lambda most=20_000 * (turn + 1): _came(served) >= most)  # type: ignore[misc]
            before = served.connections._swept
            clock.move(15)
            until(lambda was=before: served.connections._swept > was)  # type: ignore[misc]
        assert answer(slow)[0] == 408
        assert _busy(served) == 1


def _came(served: Served) -> int:
    """The bytes of the body that most has come of."""
    return max((c._bytes for c in served.connections._groups), default=0)  # type: ignore[attr-defined]


def _busy(served: Served) -> int:
    room = served.connections._all
    return room.count - len(room.silent) - len(room.idle)


def test_a_client_that_does_not_read_its_answers_is_cut(made: Make) -> None:
    served = made()
    clock = Clock(served)
    for n in range(100):
        served.ev.add("note", "x" * 50_000, id=str(n))
    ask = b"GET /v1/records?limit=100 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with closing(connect(served)) as conn:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.sendall(ask)
        until(lambda: any(c.transport.get_write_buffer_size() for c in served.connections._groups))  # type: ignore[attr-defined]
        for _ in range(3):
            before = served.connections._swept
            clock.move(31)
            until(lambda was=before: served.connections._swept > was)  # type: ignore[misc]
        until(lambda: len(served.connections) == 0)


def test_a_client_that_does_not_read_an_endless_answer_is_cut(made: Make) -> None:
    served = made()
    clock = Clock(served)

    async def endless(_: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                await asyncio.sleep(0)
                yield b"a" * 65536

        return StreamingResponse(parts())

    served.app.router.routes.insert(0, Route("/healthz", endless))
    with closing(connect(served, GET + b"\r\n")):
        until(lambda: any(c.flow.write_paused for c in served.connections._groups))  # type: ignore[attr-defined]
        for _ in range(3):
            before = served.connections._swept
            clock.move(31)
            until(lambda was=before: served.connections._swept > was)  # type: ignore[misc]
        until(lambda: len(served.connections) == 0)


def test_too_many_connections_of_a_client_are_refused_while_all_are_busy(made: Make) -> None:
    served = made(server_client_connections=3, server_client_rate=1e6)
    head = b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
    busy = [connect(served, head + b"Content-Type: application/json\r\n\r\n{") for _ in range(3)]
    until(lambda: _busy(served) == 3)
    with closing(connect(served)) as conn:
        status, body = answer(conn)
        assert status == 429
        assert "server_client_connections" in json.loads(body)["detail"]
    for conn in busy:
        conn.close()
    until(lambda: not served.connections._by_client)


def test_waiting_connections_make_room_for_new_ones(made: Make) -> None:
    """The attack of silent connections: however many there are, others are served."""
    served = made(server_connections=10)
    kept = connect(served, GET + b"\r\n")
    assert one_answer(kept).startswith(b"HTTP/1.1 200")
    silent = [connect(served) for _ in range(50)]
    http = served.http()
    for _ in range(20):
        assert http.get("/healthz").status_code == 200
    assert len(served.connections) <= 10
    kept.sendall(GET + b"\r\n")  # silent ones went first
    assert one_answer(kept).startswith(b"HTTP/1.1 200")
    for conn in (kept, *silent):
        conn.close()


def test_requests_sent_ahead_are_bounded(made: Make) -> None:
    with closing(connect(made(), (GET + b"\r\n") * 2000)) as conn:
        status, _ = answer(conn)
    assert status in (0, 200, 400)


def test_a_body_that_nobody_wants_is_not_read_to_its_end(made: Make) -> None:
    served = made(server_body_mb=1.0)
    served.key()
    head = b"POST /v1/records HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000000\r\n\r\n"
    with closing(connect(served, head)) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 401")
        sent = sent_until_cut(conn)
    assert sent < 1 << 25


def test_a_body_in_crumbs_is_refused(made: Make) -> None:
    served = made()
    head = b"POST /v1/records/batch HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
    with closing(connect(served, head)) as conn:
        with suppress(OSError):
            for _ in range(100):
                conn.sendall(b"1\r\n\n\r\n" * 1000)
        status, body = answer(conn)
    assert status == 400
    assert "chunks" in body


@pytest.mark.parametrize(
    "path", ["/internal/worker", "/v1/records", "/v1/records/batch", "/v1/keys", "/nothing/batch"]
)
def test_credentials_are_checked_before_a_byte_of_a_body_is_asked_for(
    made: Make, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SECRET", "secret")
    served = made()
    served.key()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n".encode()
    with closing(connect(served, head + b"Expect: 100-continue\r\n\r\n")) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 401")


@pytest.mark.parametrize(
    ("role", "path"),
    [
        ("reader", "/v1/records"), ("reader", "/v1/records/batch"), ("reader", "/v1/queue/purge"),
        ("writer", "/v1/migrations"), ("writer", "/v1/keys"),
    ],
)  # fmt: skip
def test_roles_are_checked_before_a_byte_of_a_body_is_asked_for(
    made: Make, role: str, path: str
) -> None:
    served = made()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n"
    head += f"Authorization: Bearer {served.key(role=role)}\r\nContent-Type: application/json\r\n"
    with closing(connect(served, head.encode() + b"Expect: 100-continue\r\n\r\n")) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 403")


def test_a_delivery_is_small(made: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKER_SECRET", "secret")
    http = made().http()
    large = http.post(
        "/internal/worker", content=b"a" * 100_000, headers={"x-worker-secret": "secret"}
    )
    assert large.status_code == 413


def test_no_connection_becomes_a_web_socket(made: Make) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with closing(connect(made(), GET + upgrade + b"Sec-WebSocket-Key: eA==\r\n\r\n")) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 200")
        assert conn.recv(1) == b""  # what follows would be in another protocol


@pytest.mark.parametrize("length", [b"Content-Length: %d", b"Transfer-Encoding: chunked"])
@pytest.mark.parametrize("method", [b"POST", b"CONNECT"])
def test_a_body_after_an_upgrade_is_no_request(made: Make, method: bytes, length: bytes) -> None:
    """A proxy that passes it on as a body would give the second answer to another client."""
    hidden = GET + b"\r\n"
    length = length.replace(b"%d", str(len(hidden)).encode())
    head = POST.replace(b"POST", method) + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    with closing(connect(made(), head + length + b"\r\n\r\n")) as conn:
        assert one_answer(conn).startswith(b"HTTP/1.1 400")
        with suppress(OSError):
            conn.sendall(hidden)
            assert conn.recv(1) == b""


def test_an_ipv6_client_is_its_network() -> None:
    assert client_network("2001:db8:1:2:3::4") == client_network("2001:db8:1:2:ffff::1")
    assert client_network("2001:db8:1:3::1") != client_network("2001:db8:1:2::1")
    assert client_network("::ffff:192.0.2.1") == client_network("192.0.2.1") == "192.0.2.1"


def test_a_service_with_few_descriptors_survives_more_connections_than_it_can_have(
    tmp_path: Path,
) -> None:
    with evervec.open(tmp_path / "evervec.db", embedder="hashing") as ev:
        key = Keys(ev.store).create("default").key
    service = ServiceProcess(tmp_path, limit_files=96)
    try:
        port = service.port
        conns = [socket.create_connection(("127.0.0.1", port), 20) for _ in range(200)]
        headers = {"Authorization": f"Bearer {key}", "Prefer": "wait=30"}
        with httpx.Client(base_url=service.url, timeout=60, headers=headers) as http:
            until(lambda: _status(http) == 200, "the service to answer beside them")
        for conn in conns:
            conn.close()
        with httpx.Client(base_url=service.url, timeout=60, headers=headers) as http:
            added = http.post("/v1/records", json={"kind": "note", "text": "after"})
            assert added.status_code == 201
        logged = service.log.read_text()
        assert "only 48 connections" in logged  # the other half is for the store and the worker
        assert len(logged.splitlines()) < 100
    finally:
        service.close()


def _status(http: httpx.Client) -> int:
    try:
        return http.get("/healthz").status_code
    except httpx.TransportError:
        return 0
