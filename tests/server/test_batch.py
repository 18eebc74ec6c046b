"""A batch: NDJSON in, tickets out while it is still being sent, in constant memory."""

import json
import socket
import tracemalloc
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

import evervec
from evervec import Evervec
from support.service import Serve, Served

NDJSON = {"Content-Type": "application/x-ndjson"}


def lines(count: int, words: int = 3) -> Iterator[bytes]:
    for n in range(count):
        record = {"kind": "note", "id": n, "text": f"text {n} " + "word " * words}
        yield json.dumps(record).encode() + b"\n"


def answered(response: httpx.Response) -> list[dict[str, Any]]:
    return [json.loads(line) for line in response.text.splitlines()]


@pytest.fixture
def served(ev: Evervec, serve: Serve) -> Served:
    return serve(ev)


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return served.http(served.key())


def test_each_line_gets_its_ticket_in_order(http: httpx.Client, ev: Evervec) -> None:
    found = http.post("/v1/records/batch", content=lines(2500), headers=NDJSON)
    assert found.status_code == 200
    tickets = answered(found)
    assert [ticket["id"] for ticket in tickets] == [str(n) for n in range(2500)]
    assert [ticket["seq"] for ticket in tickets] == sorted(ticket["seq"] for ticket in tickets)
    assert len(ev.records(limit=5000)) == 2500


def test_kinds_may_be_mixed_or_given_once(http: httpx.Client, ev: Evervec) -> None:
    body = b'{"kind":"page","id":1,"text":"a"}\n\n  \n{"id":1,"text":"b"}\n{"id":2,"text":"c"}'
    found = http.post("/v1/records/batch?kind=note", content=body, headers=NDJSON)
    assert [(t["kind"], t["id"]) for t in answered(found)] == [
        ("page", "1"), ("note", "1"), ("note", "2"),
    ]  # fmt: skip
    missing = http.post("/v1/records/batch", content=b'{"text":"a"}', headers=NDJSON)
    assert (missing.status_code, missing.json()["position"]) == (422, 0)


BAD = [
    b"{", b'{"kind":"note"}', b'{"kind":"note","text":""}', b'{"kind":"note","txt":"x"}',
    b'{"kind":"note","text":"\xff"}', b'{"kind":"note","text":"\\ud800"}', b"[]", b"1",
    b'{"kind":"note","text":"x","metadata":' + b'{"a":' * 150 + b"1" + b"}" * 151,
    b'{"kind":"note","text":"x","metadata":' + b"[" * 100_000,
]  # fmt: skip


def test_a_bad_line_ends_it_with_its_position_and_loses_nothing(
    served: Served, ev: Evervec
) -> None:
    good = b'{"kind":"note","id":%d,"text":"good"}'
    for number, bad in enumerate(BAD):
        http = served.http(served.key(f"tenant {number}"))
        body = b"\n".join([good % 0, good % 1, bad, good % 3])
        *tickets, problem = answered(http.post("/v1/records/batch", content=body, headers=NDJSON))
        assert [ticket["id"] for ticket in tickets] == ["0", "1"]
        assert (problem["status"] // 100, problem["position"]) == (4, 2)
        assert [record.id for record in ev.of(f"tenant {number}").records()] == ["0", "1"]
        first = http.post("/v1/records/batch", content=bad, headers=NDJSON)
        assert first.status_code // 100 == 4
        assert first.headers["content-type"] == "application/problem+json"


def test_a_client_that_sends_all_before_it_reads_is_not_kept_waiting(
    http: httpx.Client, ev: Evervec
) -> None:
    """Its tickets are more than sockets hold, so neither side may wait for the other."""
    count = 25_000
    found = http.post("/v1/records/batch", content=lines(count, 0), headers=NDJSON)
    assert found.text.count("\n") == count
    assert len(found.content) > 2_000_000


def test_tickets_come_while_the_body_is_still_being_sent(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as conn:
        head = (
            f"POST /v1/records/batch HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n"
            f"Content-Type: application/x-ndjson\r\nAuthorization: Bearer {served.key()}\r\n\r\n"
        )
        conn.sendall(head.encode())
        for n in range(3):
            line = b'{"kind":"note","id":%d,"text":"slow"}\n' % n
            conn.sendall(b"%x\r\n%s\r\n" % (len(line), line))
            seen = b""
            while b'"id":"%d"' % n not in seen:
                seen += conn.recv(65536)
        conn.sendall(b"0\r\n\r\n")


def test_limits_of_lines_and_records_are_settings(tmp_path: Any, serve: Serve) -> None:
    with evervec.open(
        tmp_path / "small.db", embedder="hashing", server_body_mb=0.01, server_batch=5
    ) as ev:
        served = serve(ev)
        http = served.http(served.key())
        *tickets, problem = answered(
            http.post("/v1/records/batch", content=lines(9), headers=NDJSON)
        )
        assert (len(tickets), problem["status"], problem["position"]) == (5, 413, 5)
        long = b'{"kind":"note","text":"%s"}' % (b"x" * 20_000)
        assert http.post("/v1/records/batch", content=long, headers=NDJSON).status_code == 413
        endless = http.post("/v1/records/batch", content=iter([b"x" * 8000] * 9), headers=NDJSON)
        assert endless.status_code == 413


def test_a_batch_with_a_name_can_be_sent_again(http: httpx.Client, ev: Evervec) -> None:
    body = b'{"kind":"note","text":"a"}\n{"kind":"note","text":"a"}\n'
    named = {**NDJSON, "Idempotency-Key": "load-7"}
    ids = [
        [t["id"] for t in answered(http.post("/v1/records/batch", content=body, headers=named))]
        for _ in range(2)
    ]
    assert ids[0] == ids[1]
    assert len(ev.records()) == 2


def test_memory_does_not_grow_with_the_batch(http: httpx.Client) -> None:
    def peak(count: int) -> int:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with http.stream("POST", "/v1/records/batch", content=lines(count), headers=NDJSON) as r:
            for _ in r.iter_bytes():
                pass
        return tracemalloc.get_traced_memory()[1] - before

    tracemalloc.start()
    try:
        peak(500)
        small, large = peak(2_000), peak(6_000)
    finally:
        tracemalloc.stop()
    assert large < small + 4_000_000
