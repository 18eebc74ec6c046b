"""Memory that clients make the service hold is bounded: bodies that come, answers nobody reads."""

import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

import evervec
from evervec.server import serve as running
from evervec.server.buffers import FREE_BYTES, Bodies, Unread
from evervec.server.problems import Problem
from evervec.server.rate_limits import MemoryLimiter
from evervec.settings import Settings
from support.processes import until
from support.service import Serve, Served
from support.world import Clock

MB = 1_000_000
RECORDS = "POST /v1/records"
BATCH = "POST /v1/records/batch"
Make = Callable[..., Served]


@pytest.fixture
def made(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Services over stores in memory, with settings."""
    monkeypatch.setattr(running, "_TICKS_A_SWEEP", 1)
    opened = []

    def make(limiter: Any = None, **settings: Any) -> Served:
        # large responses count against the rate limit, which is not what is tested here
        rates = {"rate_burst": 1_000_000, "rate_per_second": 1_000_000}
        ev = evervec.open("memory:", embedder="hashing", **{**rates, **settings})
        opened.append(ev)
        return serve(ev, limiter=limiter)

    yield make
    for ev in opened:
        ev.close()


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(served: Served, request: str, key: str, *headers: str) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    conn = socket.socket()
    conn.settimeout(20)
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    conn.connect((host, int(port)))
    media = "application/x-ndjson" if request == BATCH else "application/json"
    lines = [
        f"{request} HTTP/1.1", f"Host: {host}", f"Authorization: Bearer {key}",
        f"Content-Type: {media}", *headers, "", "",
    ]  # fmt: skip
    conn.sendall("\r\n".join(lines).encode())
    return conn


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


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


# bodies
def test_bodies_are_counted_by_tenant_and_together() -> None:
    bodies = Bodies(Settings(server_buffer_mb=100, server_body_mb=10))
    assert bodies.has_room("a", 25 * MB)
    bodies.hold("a", 25 * MB)
    assert not bodies.has_room("a", 1)
    assert bodies.refusal("a", 1).status_code == 429
    for tenant in "bcd":
        assert bodies.has_room(tenant, 25 * MB)
        bodies.hold(tenant, 25 * MB)
    assert not bodies.has_room("e", 1)
    assert bodies.refusal("e", 1).status_code == 503
    for tenant in "abcd":
        bodies.hold(tenant, -25 * MB)
    assert (bodies.held, len(bodies._by_tenant)) == (0, 0)


def test_one_body_has_room_however_little_there_is() -> None:
    assert Bodies(Settings(server_buffer_mb=1, server_body_mb=10)).has_room("a", 10 * MB)


@pytest.mark.parametrize("chunked", [True, False])
def test_unfinished_bodies_of_a_tenant_are_bounded_and_others_go_on(
    made: Make, opened: ExitStack, chunked: bool
) -> None:
    served = made(server_buffer_mb=4, server_body_mb=1)
    evil, good = served.key("evil"), served.http(served.key("good"))
    bodies = served.app.state.service.bodies
    length = "Transfer-Encoding: chunked" if chunked else "Content-Length: 1000000"
    data = b" " * 900_000
    held = opened.enter_context(closing(connect(served, RECORDS, evil, length)))
    held.sendall(chunk(data) if chunked else data)
    until(lambda: bodies.held > 700_000)
    with closing(connect(served, RECORDS, evil, length)) as second:
        second.sendall(chunk(data) if chunked else data)
        status, said = answer(second)
    assert status == 429
    assert "server_buffer_mb" in json.loads(said)["detail"]
    own = served.http(evil)
    assert own.post("/v1/records", json={"kind": "note", "text": "short"}).status_code == 202
    long = {"kind": "note", "text": "x " * 400_000}
    assert good.post("/v1/records", json=long).status_code == 202
    assert bodies.held <= MB
    held.close()
    until(lambda: not bodies.held)
    assert own.post("/v1/records", json=long).status_code == 202
    assert not bodies.held


def test_a_search_has_a_shorter_body_than_an_add(made: Make) -> None:
    served = made(server_query_mb=0.1)
    http = served.http(served.key())
    long = {"query": "x" * 200_000}
    refused = http.post("/v1/search", json=long)
    assert (refused.status_code, "server_query_mb" in refused.json()["detail"]) == (413, True)
    add = {"kind": "note", "text": "x" * 200_000}
    assert http.post("/v1/records", json=add).status_code == 202


def test_a_batch_goes_on_while_other_bodies_hold_everything(made: Make, opened: ExitStack) -> None:
    served = made(server_buffer_mb=4, server_body_mb=1)
    key, bodies = served.key("busy"), served.app.state.service.bodies
    held = opened.enter_context(closing(connect(served, RECORDS, key, "Content-Length: 1000000")))
    held.sendall(b" " * 999_999)
    until(lambda: bodies.held > 900_000)
    line = json.dumps({"kind": "note", "id": "a", "text": "tea " * 250}).encode() + b"\n"
    http = served.http(key)
    done = http.post(
        "/v1/records/batch", content=line * 3000, headers={"Content-Type": "application/x-ndjson"}
    )
    assert (done.status_code, len(done.text.splitlines())) == (200, 3000)
    held.close()
    until(lambda: not bodies.held)


def test_a_long_line_of_a_batch_is_refused_while_there_is_no_room(
    made: Make, opened: ExitStack
) -> None:
    served = made(server_buffer_mb=4, server_body_mb=1)
    key, bodies = served.key("busy"), served.app.state.service.bodies
    held = opened.enter_context(closing(connect(served, RECORDS, key, "Content-Length: 1000000")))
    held.sendall(b" " * 999_999)
    until(lambda: bodies.held > 900_000)
    first = b'{"kind":"note","text":"good"}\n{"kind":"note","text":"'
    with closing(connect(served, BATCH, key, "Transfer-Encoding: chunked")) as conn:
        conn.sendall(chunk(first) + chunk(b"x" * 600_000))
        status, said = answer(conn)
    found = [json.loads(line) for line in re.findall(r"^\{.*\}$", said, re.MULTILINE)]
    assert status == 200
    assert (found[-1]["status"], found[-1]["position"]) == (429, 1)
    assert "server_buffer_mb" in found[-1]["detail"]
    assert [record.text for record in served.ev.of("busy").records()] == ["good"]


def test_a_body_of_unknown_length_costs_what_comes(made: Make) -> None:
    clock = Clock(1000.0)
    served = made(MemoryLimiter(rate=0.001, burst=40, clock=clock), server_body_mb=10)
    key = served.key()
    with closing(connect(served, RECORDS, key, "Transfer-Encoding: chunked")) as conn:
        try:
            for _ in range(80):
                conn.sendall(chunk(b" " * 100_000))
        except OSError:
            pass
        assert answer(conn)[0] in (429, 0)
    assert served.http(key).get("/v1/records").status_code == 429
    short = b'{"kind": "note", "text": "tea"}'
    with closing(
        connect(served, RECORDS, served.key(agent="b"), "Transfer-Encoding: chunked")
    ) as conn:
        conn.sendall(chunk(short) + b"0\r\n\r\n")
        assert b" 202 " in conn.recv(65536).splitlines()[0]


# answers that nobody reads
class Slow:
    """A connection of a client that reads nothing."""

    def __init__(self) -> None:
        self.cut = False
        self.size = 0

    def unsent(self) -> int:
        return self.size

    def evict(self) -> None:
        self.cut = True


def test_the_largest_and_oldest_answers_are_cut_first() -> None:
    clock = Clock(1000.0)
    unread = Unread(Settings(server_buffer_mb=10), clock)
    small, large, late = Slow(), Slow(), Slow()
    small.size, large.size, late.size = MB, 3 * MB, 2 * MB
    unread.hold(small, "a", small.size)
    unread.hold(large, "a", large.size)
    clock.move(5)
    unread.check("b")
    with pytest.raises(Problem, match="not read yet"):
        unread.check("a")
    unread.hold(late, "a", late.size)
    assert [each.cut for each in (small, large, late)] == [False, True, False]
    unread.shrink(late, MB)
    assert unread.held == 2 * MB
    for each in (small, large, late):
        unread.release(each)
    assert (unread.held, len(unread._by_tenant)) == (0, 0)


def test_who_reads_fast_is_not_cut() -> None:
    class Fast(Slow):
        def unsent(self) -> int:
            return 100_000

    clock = Clock(1000.0)
    unread = Unread(Settings(server_buffer_mb=10), clock)
    readers = [Fast() for _ in range(40)]
    for reader in readers:
        unread.hold(reader, "a", MB)
        clock.move(0.01)
    assert not any(each.cut for each in readers)
    assert unread.held <= 5 * MB


def test_one_answer_is_never_cut_for_its_size_and_all_together_are_bounded() -> None:
    clock = Clock(1000.0)
    unread = Unread(Settings(server_buffer_mb=10), clock)
    alone = Slow()
    unread.hold(alone, "a", 50 * MB)
    assert not alone.cut
    unread.release(alone)
    readers = [Slow() for _ in range(8)]
    for n, reader in enumerate(readers):
        reader.size = 3 * MB
        unread.hold(reader, f"tenant {n}", reader.size)
        clock.move(1)
    assert [each.cut for each in readers] == [True] * 5 + [False] * 3


PAGE = "GET /v1/records?limit=40"


def fill(served: Served, tenant: str) -> None:
    """Records for a page that is larger than what sockets hold."""
    for n in range(40):
        served.ev.of(tenant).add("note", "x" * 200_000, id=str(n))


def test_a_tenant_that_does_not_read_gets_no_more_and_holds_no_more_than_its_part(
    made: Make, opened: ExitStack
) -> None:
    served = made(server_buffer_mb=20)
    fill(served, "evil")
    fill(served, "good")
    key, unread = served.key("evil", "reader"), served.app.state.service.unread
    slow = [connect(served, PAGE, key) for _ in range(8)]
    for conn in slow:
        opened.callback(conn.close)
    until(lambda: served.http(key).get("/v1/records?limit=1").status_code == 429)
    until(lambda: not served.app.state.service.calls)
    assert unread.held <= 10 * MB + 9 * MB  # its half, and one answer
    good = served.http(served.key("good", "reader")).get("/v1/records?limit=40")
    assert len(good.json()["records"]) == 40
    metrics = served.http(served.key("ops", "admin")).get("/metrics").text
    assert 'evervec_held_bytes{of="responses"}' in metrics
    for conn in slow:
        conn.close()
    until(lambda: not unread.held)
    assert served.http(key).get("/v1/records?limit=1").status_code == 200


def test_the_next_request_waits_until_the_answer_before_is_read(
    made: Make, opened: ExitStack
) -> None:
    """Otherwise each connection could hold a second answer, which is counted nowhere."""
    served = made()
    fill(served, "a")
    key, unread = served.key("a", "reader"), served.app.state.service.unread
    conn = connect(served, PAGE, key)
    opened.callback(conn.close)
    until(lambda: unread.held > MB)
    asked = served.app.state.counts.requests
    again = f"{PAGE} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
    conn.sendall(again * 3)
    other = served.http(key)
    for _ in range(5):
        assert other.get("/v1/records?limit=1").status_code == 200
    assert served.app.state.counts.requests == asked + 5
    until(lambda: not served.app.state.service.calls)  # none has an answer that it cannot send
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    answers = 0
    while answers < 4:
        data = conn.recv(1 << 20)
        assert data
        answers += data.count(b"HTTP/1.1 200")
    assert served.app.state.counts.requests >= asked + 5 + 2


def test_a_large_answer_must_be_read_faster_than_a_small_one(made: Make, opened: ExitStack) -> None:
    served = made(server_most_seconds=100.0, server_body_rate=500)
    fill(served, "a")
    key = served.key("a", "reader")
    conn = connect(served, PAGE, key)
    opened.callback(conn.close)
    unread = served.app.state.service.unread
    until(lambda: unread.held > MB)
    groups: Any = served.connections._groups
    (protocol,) = (each for each in groups if each._largest)
    wanted = protocol._largest / 100
    assert wanted > 10_000
    clock = Unswept(served)
    for _ in range(40):  # more than server_body_rate, less than what so large an answer needs
        if not len(served.connections):
            break
        for _ in range(4):
            conn.recv(2000)
        clock.move(1)
    until(lambda: protocol not in groups)


class Unswept:
    """Time of connections, as far as the test has moved it; it waits for the sweep."""

    def __init__(self, served: Served) -> None:
        self._connections = served.connections
        self.now = self._connections.clock()
        self._connections.clock = lambda: self.now
        self._connections._swept = self.now

    def move(self, seconds: float) -> None:
        before = self._connections._swept
        self.now += seconds
        until(lambda: self._connections._swept > before)


def test_what_every_request_may_hold_is_not_counted(
    made: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = made()
    http = served.http(served.key())
    bodies = served.app.state.service.bodies
    held: list[int] = []
    monkeypatch.setattr(bodies, "hold", lambda tenant, size: held.append(size))
    text = "x" * (FREE_BYTES // 2)
    assert http.post("/v1/records", json={"kind": "note", "text": text}).status_code == 202
    assert not held
