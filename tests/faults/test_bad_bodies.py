"""Bodies that are too large, too deep, not UTF-8, or hold what is no text."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import evervec
from support.service import Served, serving

JSON = {"Content-Type": "application/json"}
NOTE = b'{"kind": "note", "id": "1", "text": %s}'
BODIES = {
    "too large": NOTE % (b'"' + b"x" * 2_000_000 + b'"'),
    "deep lists": NOTE % (b"[" * 100_000),
    "deep objects": b'{"kind":"note","text":"x","metadata":'
    + b'{"a":' * 5_000
    + b"1"
    + b"}" * 5_001,
    "just too deep": b'{"kind":"note","text":"x","metadata":' + b'{"a":' * 70 + b"1" + b"}" * 71,
    "not UTF-8": NOTE % b'"\xff\xfe"',
    "half a character": NOTE % b'"\xc3"',
    "a byte order mark": b"\xef\xbb\xbf" + NOTE % b'"x"',
    "UTF-16": (NOTE % b'"x"').decode().encode("utf-16"),
    "a NUL byte": NOTE % b'"a\0b"',
    "an escaped NUL": NOTE % b'"a\\u0000b"',
    "a NUL in metadata": b'{"kind":"note","text":"x","metadata":{"a\\u0000":"b"}}',
    "half a surrogate pair": NOTE % b'"a\\ud800b"',
    "the other half": b'{"kind":"note","id":"\\udc00","text":"x"}',
    "not JSON": b"kind=note&text=x",
    "nothing": b"",
    "a number": b"1",
    "not a number": b'{"kind":"note","text":"x","weight":NaN}',
    "too many digits": b'{"kind":"note","text":"x","version":' + b"9" * 5_000 + b"}",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("bodies") / "store.db"
    with evervec.open(path, embedder="hashing", server_body_mb=1.0) as ev, serving() as serve:
        yield serve(ev)


@pytest.mark.parametrize("path", ["/v1/records", "/v1/search", "/v1/queue/purge", "/v1/wait"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_bad_body_gets_a_problem_document_and_the_next_request_works(
    served: Served, path: str, body: bytes
) -> None:
    with httpx.Client(base_url=served.url, timeout=60, verify=False) as http:
        for sent in (body, iter([body[: len(body) // 2], body[len(body) // 2 :]])):
            answered = http.post(path, content=sent, headers=JSON)
            assert 400 <= answered.status_code < 500, answered.text
            assert answered.headers["content-type"] == "application/problem+json"
            problem = answered.json()
            assert problem["status"] == answered.status_code
            assert problem["error"]
            assert problem["request_id"] == answered.headers["x-request-id"]
        good = http.post("/v1/records", json={"kind": "note", "id": "good", "text": "good"})
        assert good.status_code == 202
    assert [record.id for record in served.ev.records()] == ["good"]


def test_the_size_is_refused_before_it_is_sent(served: Served) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    head = f"POST /v1/records HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    with socket.create_connection((host, int(port)), timeout=20) as conn:
        conn.sendall(f"{head}Content-Length: 1000000000000\r\n\r\n{{".encode())
        assert conn.recv(65536).startswith(b"HTTP/1.1 413")


def test_paths_and_questions_with_no_text_in_them(served: Served) -> None:
    with httpx.Client(base_url=served.url, timeout=60, verify=False) as http:
        for path in ("/v1/records/note/%00", "/v1/records/%ff/1", "/v1/jobs/99999999999999999999",
                     "/v1/records?kind=%00", "/v1/records?tenant=%00", "/v1/jobs?id=%00",
                     "/v1/records/%20/1"):  # fmt: skip
            assert http.get(path).status_code in (404, 422), path
        bad = {"query": "x", "filter": {"a": {"b": {"c": 1}}}}
        assert http.post("/v1/search", json=bad).status_code == 422
        sent = json.dumps({"query": "x", "filter": {"a\0": "\0"}})
        assert http.post("/v1/search", content=sent, headers=JSON).status_code == 422
