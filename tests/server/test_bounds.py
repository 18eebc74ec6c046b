"""What a client sends has bounds, whatever the route: a problem document that names the bound."""

import base64
import gzip
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any

import httpx
import pytest

import evervec
from evervec import Evervec
from evervec.model.jobs import Ticket
from evervec.records.drafts import make_draft
from evervec.records.writer import Save
from evervec.server import requests
from evervec.server.idempotency import IdempotencyKeys
from evervec.server.problems import Problem
from evervec.server.rate_limits import MemoryLimiter
from evervec.server.routes.records import RecordIn
from evervec.server.service import Service
from support.service import Serve, Served
from support.world import Clock

NDJSON = {"Content-Type": "application/x-ndjson"}
BIG: dict[str, Any] = {"o": {f"k{n}": n for n in range(16_000)}}


@pytest.fixture
def served(ev: Evervec, serve: Serve) -> Served:
    return serve(ev)


@pytest.fixture
def http(served: Served) -> httpx.Client:
    return served.http(served.key())


SEARCHES: list[tuple[dict[str, Any], str]] = [
    ({"query": "w " * 60_000}, "query_chars"),
    ({"query": "\u0301\u0327" * 250_000}, "query_chars"),
    ({"query": "tea", "filter": {f"f{n}": None for n in range(10_000)}}, "filter_conditions"),
    ({"query": "tea", "filter": {"a": list(range(10_000))}}, "filter_values"),
    ({"query": "tea", "filter": {"a": "x" * 1_000_000}}, "filter_chars"),
]


@pytest.mark.parametrize(("body", "bound"), SEARCHES)
def test_a_search_over_its_bounds_is_refused(
    http: httpx.Client, body: dict[str, Any], bound: str
) -> None:
    found = http.post("/v1/search", json=body)
    assert (found.status_code, found.json()["type"]) == (422, "urn:evervec:InvalidArgument")
    assert f"are allowed ({bound})" in found.json()["detail"]
    assert len(found.content) < 1000


def test_records_over_their_bounds_are_refused_by_every_way_in(
    http: httpx.Client, ev: Evervec
) -> None:
    for part, bound in (
        ({"metadata": BIG}, "metadata_values"),
        ({"title": "x" * 9999}, "title_ch"),
    ):
        record = {"kind": "note", "id": "bad", "text": "tea", **part}
        one = http.post("/v1/records", json=record)
        assert one.status_code == 422
        good = {"kind": "note", "id": "good", "text": "tea"}
        body = b"\n".join(json.dumps(line).encode() for line in (good, record, good))
        many = http.post("/v1/records/batch", content=body, headers=NDJSON)
        last = json.loads(many.text.splitlines()[-1])
        assert (last["status"], last["position"]) == (422, 1)
        assert bound in one.json()["detail"]
        assert bound in last["detail"]
    assert [record.id for record in ev.records()] == ["good"]
    filter = json.dumps({f"f{n}": 1 for n in range(65)})
    listed = http.get("/v1/records", params={"filter": filter})
    assert (listed.status_code, "filter_conditions" in listed.text) == (422, True)


def cursor_of(place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


FORGED = [
    [10**30], [1 << 63], [-1], [-(1 << 63) - 1], [True], [1.5], [float("nan")], [float("inf")],
    [None], ["1"], [[1]], [{}], [], [1, 2], [int("9" * 4000)], 7, None, "x", {}, {"0": 1},
    ["a", "b", "c"], ["a", 1], [1, "a"], ["", ""], ["\ud800", "x"], ["a\0", "b"], ["a", None],
    ["a", "b" * 5000], [["a"], ["b"]],
]  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/records"])
def test_a_forged_cursor_is_refused(http: httpx.Client, path: str) -> None:
    cursors = [cursor_of(place) for place in FORGED]
    cursors += ["", "=", "!", "é", "A" * 3, "W10", base64.b64encode(b"[" * 9000).decode(), "\0"]
    for cursor in cursors:
        found = http.get(path, params={"cursor": cursor})
        assert found.status_code == 422, cursor
    for cursor in (cursor_of([(1 << 63) - 1]), cursor_of([0])):
        assert http.get("/v1/jobs", params={"cursor": cursor}).status_code == 200


def test_an_answer_does_not_repeat_all_that_is_wrong(http: httpx.Client) -> None:
    body = {f"{'x' * 100}{n}": n for n in range(10_000)}
    for path in ("/v1/search", "/v1/records"):
        found = http.post(path, json={**body, "kind": "note", "text": "tea", "query": "tea"})
        assert found.status_code == 422
        assert "has 10,003 fields" in found.json()["detail"]
        assert len(found.content) < 5000
    assert len(http.get("/v1/jobs", params={"x" * 5000: "1"}).content) < 1000


def test_a_ticket_that_nobody_gave_is_refused_and_not_repeated(http: httpx.Client) -> None:
    ticket = {"kind": "note", "id": "x" * 1_000_000, "job_id": 1, "seq": 1}
    for path, body in (
        ("/v1/wait", {"ticket": ticket}),
        ("/v1/search", {"query": "tea", "after": {**ticket, "id": "1", "kind": "x" * 1_000_000}}),
    ):
        found = http.post(path, json=body)
        assert (found.status_code, len(found.content) < 1000) == (422, True)


# idempotency names
def test_two_agents_may_choose_the_same_name(served: Served, ev: Evervec) -> None:
    named = {"Idempotency-Key": "order-1"}
    agents = [served.http(served.key(agent=agent)) for agent in ("one", "two")]
    posts: list[Callable[[httpx.Client, str], httpx.Response]] = [
        lambda http, text: http.post(
            "/v1/records", json={"kind": "note", "text": text}, headers=named
        ),
        lambda http, text: http.post(
            "/v1/records/batch",
            content=json.dumps({"kind": "line", "text": text}),
            headers={**named, **NDJSON},
        ),
    ]
    for post in posts:
        first = [post(http, f"of {n}") for n, http in enumerate(agents)]
        again = [post(http, f"of {n}") for n, http in enumerate(agents)]
        assert [answer.status_code // 100 for answer in first] == [2, 2]
        ids = [answer.json()["id"] for answer in first]
        assert len(set(ids)) == 2
        assert [answer.json()["id"] for answer in again] == ids
    assert len(ev.records()) == 4


@pytest.fixture
def counts(ev: Evervec, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tenants whose names were counted."""
    found: list[str] = []
    count = ev.store.service.count_asked

    def counted(tenant: str, most: int) -> int:
        found.append(tenant)
        return count(tenant, most)

    monkeypatch.setattr(ev.store.service, "count_asked", counted)
    return found


def test_a_tenant_has_only_so_many_names(ev: Evervec, counts: list[str]) -> None:
    clock = Clock()
    names = IdempotencyKeys(ev.store, replace(ev.settings, server_repeat_names=5), clock)
    for n in range(5):
        assert names.ask("acme", f"name {n}", "abc").answer is None
    for n in range(5, 50):
        with pytest.raises(
            Problem, match=r"5 stored Idempotency-Keys \(server_repeat_names\)"
        ) as full:
            names.ask("acme", f"name {n}", "abc")
    assert full.value.status_code == 429
    assert names.ask("acme", "name 3", "abc").fingerprint == "abc"  # known ones are answered
    assert names.ask("other", "name 9", "abc").answer is None
    assert len(counts) <= 8
    ev.store.service.forget_asked(ev.store.now() + 1)
    clock.move(61)
    assert names.ask("acme", "name 50", "abc").fingerprint == "abc"


def test_names_are_counted_once_for_many_requests(ev: Evervec, counts: list[str]) -> None:
    names = IdempotencyKeys(ev.store, replace(ev.settings, server_repeat_names=20_000))
    for n in range(1000):
        names.ask("acme", f"name {n}", "abc")
    assert len(counts) <= 1000 // 200 + 1


# saved together
def test_a_draft_that_the_store_refuses_fails_no_other_agents(ev: Evervec) -> None:
    service = Service(ev)
    with closing(service):
        asked = [
            Save(tenant, "note", make_draft(f"text {n}", {"id": f"{n}"}, None))
            for tenant in ("acme", "evil")
            for n in range(100)
        ]
        for place in (7, 150, 199):
            asked[place].draft.weight = None  # type: ignore[assignment]
        asked[160].draft.priority = 1 << 70  # what a driver cannot take
        ends = service._save_all(asked)
    bad = [place for place, end in enumerate(ends) if not isinstance(end, Ticket)]
    assert bad == [7, 150, 160, 199]
    assert (len(ev.of("acme").records()), len(ev.of("evil").records())) == (99, 97)


def test_a_line_that_the_store_refuses_loses_only_what_is_behind_it(
    http: httpx.Client, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Evervec.draft

    def drafting(self: Evervec, kind: str, data: Any, options: Any) -> Any:
        made = draft(self, kind, data, options)
        if data == "bad":
            made.weight = None  # type: ignore[assignment]
        return made

    monkeypatch.setattr(Evervec, "draft", drafting)
    texts = ["good"] * 700 + ["bad"] + ["good"] * 299
    body = b"\n".join(b'{"id":%d,"text":"%s"}' % (n, t.encode()) for n, t in enumerate(texts))
    found = http.post("/v1/records/batch", params={"kind": "note"}, content=body, headers=NDJSON)
    *tickets, problem = map(json.loads, found.text.splitlines())
    assert (len(tickets), problem["status"], problem["position"]) == (700, 422, 700)
    assert "store.db" not in found.text
    assert len(ev.records(limit=1000)) == 700


# bytes of a batch
def endless(conn: socket.socket, chunk: bytes) -> int:
    """Send for as long as the service takes it; how many bytes that were."""
    sent = 0
    part = b"%x\r\n%s\r\n" % (len(chunk), chunk)
    try:
        while sent < 200_000_000:
            conn.sendall(part)
            sent += len(chunk)
    except OSError:
        pass
    return sent


def open_batch(served: Served) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    conn = socket.create_connection((host, int(port)), timeout=20)
    head = (
        f"POST /v1/records/batch HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n"
        f"Content-Type: application/x-ndjson\r\nAuthorization: Bearer {served.key()}\r\n\r\n"
    )
    conn.sendall(head.encode())
    return conn


@pytest.mark.parametrize("first", [b"", b'{"kind":"note","text":"good"}\n'], ids=["bad", "good"])
def test_a_batch_is_not_heard_without_end_after_a_bad_line(served: Served, first: bytes) -> None:
    with open_batch(served) as conn:
        start = first + b"{]\n"
        conn.sendall(b"%x\r\n%s\r\n" % (len(start), start))
        assert (
            endless(conn, b"x" * 65_536) < 100_000_000
        )  # some server_body_mb, and what sockets hold


def test_a_batch_has_a_bound_of_bytes(tmp_path: Any, serve: Serve) -> None:
    line = b'{"kind":"note","text":"%s"}\n' % (b"x" * 900)
    with evervec.open(tmp_path / "small.db", embedder="hashing", server_batch_mb=0.1) as ev:
        http = serve(ev).http()
        named = http.post("/v1/records/batch", content=line * 200, headers=NDJSON)
        assert (named.status_code, "server_batch_mb" in named.text) == (413, True)
        assert ev.records() == []

        def parts() -> Iterator[bytes]:
            for _ in range(200):
                yield line

        found = http.post("/v1/records/batch", content=parts(), headers=NDJSON)
        *tickets, problem = map(json.loads, found.text.splitlines())
        assert (problem["status"], problem["position"]) == (413, len(tickets))
        assert "server_batch_mb" in problem["detail"]
        assert len(ev.records(limit=1000)) == len(tickets) <= 107


def test_a_connection_is_closed_whose_body_was_not_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server would read on, to find the next request behind it."""
    monkeypatch.setattr(requests, "_LINGER_SECONDS", 0.1)
    host, port = served.url.removeprefix("http://").split(":")
    key = served.key()
    for path, length, status in (("/v1/search", 10**12, 413), ("/v1/none", 10**12, 404)):
        with socket.create_connection((host, int(port)), timeout=20) as conn:
            conn.sendall(
                f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                f"Authorization: Bearer {key}\r\nContent-Length: {length}\r\n\r\n".encode()
            )
            answer = conn.recv(65_536)
            assert b" %d " % status in answer.splitlines()[0]
            assert b"connection: close" in answer.lower()
            while conn.recv(65_536):
                pass


def test_a_body_that_is_too_large_is_told_so_and_not_cut_off(served: Served) -> None:
    """Most clients read nothing before they have sent all."""
    headers = {"Authorization": f"Bearer {served.key()}", "Content-Type": "application/json"}
    body = json.dumps({"kind": "note", "text": "x" * 15_000_000})
    for _ in range(3):
        with closing(HTTPConnection(served.url.removeprefix("http://"), timeout=20)) as conn:
            conn.request("POST", "/v1/records", body, headers)
            answer = conn.getresponse()
            assert (answer.status, b"server_body_mb" in answer.read()) == (413, True)


@pytest.mark.parametrize("path", ["/v1/search", "/v1/records", "/v1/none"])
def test_no_body_is_read_without_end(
    served: Served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as conn:
        conn.sendall(
            f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {served.key()}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        )
        assert endless(conn, b"x" * 65_536) < 100_000_000


# what is read for one answer
def test_a_page_of_large_objects_ends_early(serve: Serve) -> None:
    with evervec.open("memory:", embedder="hashing", server_page_mb=0.1) as ev:
        ev.register(evervec.Kind("tea", text="{name}"))
        large = ({"id": f"{n:03}", "name": "a", "more": "x" * 10_000} for n in range(40))
        list(ev.add_many("tea", large))
        page = serve(ev).http().get("/v1/records", params={"limit": 1000}).json()
        assert len(page["records"]) == 10
        assert len(page["records"][0]["data"]["more"]) == 10_000
        assert page["cursor"] is not None


def test_a_page_of_long_texts_ends_early_and_none_is_left_out(
    tmp_path: Any, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    with evervec.open(tmp_path / "a.db", embedder="hashing", server_page_mb=0.1) as ev:
        list(ev.add_many("note", ({"id": f"{n:03}", "text": "x" * 10_000} for n in range(100))))
        http, ids, cursor, pages = serve(ev).http(), [], None, 0
        asked, read = [], ev.store.records.page

        def listed(*args: Any, **given: Any) -> Any:
            asked.append(given["limit"])
            return read(*args, **given)

        monkeypatch.setattr(ev.store.records, "page", listed)
        while True:
            params = {"limit": 1000, **({"cursor": cursor} if cursor else {})}
            page = http.get("/v1/records", params=params).json()
            ids += [record["id"] for record in page["records"]]
            assert len(page["records"]) <= 16
            pages, cursor = pages + 1, page["cursor"]
            if cursor is None:
                break
        assert ids == [f"{n:03}" for n in range(100)]
        assert max(asked) <= 16
        with evervec.Client(str(http.base_url)) as client:
            assert len(client.records(limit=50)) == 50


def test_a_search_holds_few_long_texts_at_once(
    ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "alpha " + "words and more of them " * 20_000
    list(ev.add_many("note", ({"id": f"{n}", "text": f"{long} {n}"} for n in range(60))))
    asked, read = [], ev.store.records.found

    def found(records: Any) -> Any:
        asked.append(len(records))
        return read(records)

    monkeypatch.setattr(ev.store.records, "found", found)
    assert len(ev.search("alpha", 60, mode="text")) == 60
    assert asked[0] == 16
    assert max(asked[1:]) <= 4
    assert sum(asked) == 60
    asked.clear()
    assert len(ev.search("alpha", 60, mode="text")) == 60
    assert sum(asked) <= 60


def test_json_of_too_many_values_is_refused_before_it_is_read(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(*_: object, **__: object) -> None:
        raise AssertionError("it was read")

    many = b",".join([b"1"] * 30_000)
    few = b'{"kind": "note", "id": "1", "text": "' + b'a, [b] {c} \\" \\\\ ' * 5_000 + b'"}'
    with served.http(served.key()) as http:
        json = {"Content-Type": "application/json"}
        assert http.post("/v1/records", content=few, headers=json).status_code == 202
        with monkeypatch.context() as patched:
            patched.setattr("evervec.server.requests.json.loads", read)
            patched.setattr(RecordIn, "model_validate_json", read)
            for path, body in (
                ("/v1/search", b'{"query": "tea", "filter": {"a": [' + many + b"]}}"),
                (
                    "/v1/records",
                    b'{"kind": "note", "text": "a", "metadata": {"a": [' + many + b"]}}",
                ),
                ("/v1/records", b'{"kind": "note", "text": "a", "metadata": ' + b'"' * 200_000),
            ):
                answer = http.post(path, content=body, headers=json)
                assert answer.status_code == 422
                assert "server_values" in answer.text


def test_a_long_body_counts_as_several_requests(ev: Evervec, serve: Serve) -> None:
    served = serve(ev, limiter=MemoryLimiter(0.01, 10))
    with served.http(served.key()) as http:
        text = "a " * 200_000
        assert http.post("/v1/records", json={"kind": "note", "text": text}).status_code == 202
        left = http.get("/v1/jobs").headers["RateLimit"]
        assert left.startswith('"agent";r=2;')
        assert http.post("/v1/records", json={"kind": "note", "text": text}).status_code == 202
        assert http.get("/v1/jobs").status_code == 429


@pytest.mark.parametrize("path", ["/v1/records", "/v1/search", "/v1/records/batch"])
def test_a_compressed_body_is_refused(served: Served, path: str) -> None:
    kind = "application/x-ndjson" if path.endswith("batch") else "application/json"
    answer = served.http(served.key()).post(
        path,
        content=gzip.compress(b'{"kind": "note", "text": "tea", "query": "tea"}'),
        headers={"Content-Type": kind, "Content-Encoding": "gzip"},
    )
    assert answer.status_code == 415
    assert "Content-Encoding: gzip" in answer.json()["detail"]
