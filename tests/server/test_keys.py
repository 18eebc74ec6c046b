"""Keys, tokens and the audit log over HTTP; and what a revoked key ends."""

import json
import socket
import threading
from collections import Counter
from collections.abc import Iterable
from typing import Any

import httpx
import pytest

import evervec
from evervec import Evervec
from evervec.server.audit import Audit
from evervec.server.keys import Keys
from evervec.stores.service_values import AuditChoice, StoredKey
from support.processes import until
from support.service import Serve, Served
from support.world import fail_for_good


@pytest.fixture
def quiet(ev: Evervec, serve: Serve) -> Served:
    """A service without a worker."""
    return serve(ev)


def test_an_admin_makes_lists_rotates_and_revokes_keys(quiet: Served, ev: Evervec) -> None:
    admin = quiet.http(quiet.key(role="admin"))
    given = {"tenant": "acme", "agent": "crawler", "role": "writer", "expires_in": 3600}
    made = admin.post("/v1/keys", json=given)
    assert made.status_code == 201
    assert made.headers["cache-control"] == "no-store"
    key = made.json()
    old = quiet.http(key["key"])
    assert old.get("/v1/records").status_code == 200
    listed = admin.get("/v1/keys?tenant=acme").json()["keys"]
    assert [shown["id"] for shown in listed] == [key["id"]]
    assert "key" not in listed[0]
    rotated = admin.post(f"/v1/keys/{key['id']}/rotate", json={"overlap": 600}).json()
    new = quiet.http(rotated["key"])
    assert (new.get("/v1/records").status_code, old.get("/v1/records").status_code) == (200, 200)
    assert admin.post(f"/v1/keys/{key['prefix']}/revoke").status_code == 200
    assert (new.get("/v1/records").status_code, old.get("/v1/records").status_code) == (200, 401)
    assert admin.post(f"/v1/keys/{key['id']}/revoke").status_code == 404
    assert admin.post(f"/v1/keys/{key['id']}/rotate").status_code == 404
    assert admin.post("/v1/keys/000000000000/rotate").status_code == 404
    secret = key["key"].removeprefix(f"{key['prefix']}_")
    assert secret not in repr(ev.store.service.keys(None))
    assert secret not in admin.get("/v1/audit").text


@pytest.mark.parametrize("role", ["reader", "writer"])
def test_nobody_else_sees_keys_or_the_audit_log(quiet: Served, role: str) -> None:
    http = quiet.http(quiet.key(role=role))
    assert http.get("/v1/keys").status_code == 403
    assert http.get("/v1/audit").status_code == 403
    assert http.post("/v1/keys", json={"tenant": "default", "role": "admin"}).status_code == 403
    assert http.post("/v1/keys/000000000000/revoke").status_code == 403
    assert http.post("/v1/keys/000000000000/rotate").status_code == 403


def test_the_first_key_can_be_made_over_http_and_is_an_admins(quiet: Served) -> None:
    http = quiet.http()
    assert http.post("/v1/keys", json={"tenant": "acme", "role": "reader"}).status_code == 409
    assert http.post("/v1/tokens", json={}).status_code == 409
    made = http.post("/v1/keys", json={"tenant": "default", "role": "admin"})
    assert made.status_code == 201
    assert http.get("/v1/keys").status_code == 401
    assert quiet.http(made.json()["key"]).get("/v1/keys").status_code == 200


def test_keys_of_a_duckdb_store_are_revoked_while_it_is_served(tmp_path: Any, serve: Serve) -> None:
    with evervec.open(f"duckdb:///{tmp_path}/store.duckdb", embedder="hashing") as ev:
        served = serve(ev)
        admin, made = served.http(served.key(role="admin")), Keys(ev.store).create("acme")
        http = served.http(made.key)
        assert http.get("/v1/records").status_code == 200
        assert admin.post(f"/v1/keys/{made.info.id}/revoke").status_code == 200
        assert http.get("/v1/records").status_code == 401
        served.close()


def test_a_token_does_a_part_of_what_its_key_may(quiet: Served, ev: Evervec) -> None:
    parent = Keys(ev.store).create("acme", "crawler", "writer")
    key = quiet.http(parent.key)
    made = key.post("/v1/tokens", json={"role": "reader", "expires_in": 60})
    assert made.status_code == 201
    token = quiet.http(made.json()["token"])
    record = {"kind": "note", "id": "1", "text": "x"}
    assert key.post("/v1/records", json=record).status_code == 202
    assert token.get("/v1/records/note/1").status_code == 200
    assert token.post("/v1/records", json=record).status_code == 403
    assert token.post("/v1/tokens", json={}).status_code == 403
    Keys(ev.store).revoke(parent.info.id)
    assert token.get("/v1/records/note/1").status_code == 401


@pytest.mark.parametrize(
    ("role", "asked", "status"),
    [
        ("reader", {"role": "writer"}, 403),
        ("writer", {"role": "admin"}, 403),
        ("writer", {"tenant": "other"}, 403),
        ("writer", {"expires_in": 3601}, 422),
        ("writer", {"expires_in": 0}, 422),
        ("writer", {"kinds": []}, 422),
        ("admin", {"role": "admin", "kinds": ["note"]}, 422),
        ("admin", {"role": "admin"}, 201),
        ("admin", {"role": "writer", "tenant": "other"}, 201),
    ],
)
def test_what_a_token_may_be(quiet: Served, role: str, asked: Any, status: int) -> None:
    made = quiet.http(quiet.key(role=role)).post("/v1/tokens", json=asked)
    assert made.status_code == status, made.text
    if asked.get("expires_in") == 3601:
        assert "token_seconds" in made.json()["detail"]


def test_tokens_of_a_key_are_bounded(serve: Serve) -> None:
    with evervec.open("memory:", embedder="hashing", tokens_per_key=2) as ev:
        served = serve(ev)
        http = served.http(served.key(role="reader"))
        made = [http.post("/v1/tokens", json={"expires_in": 0.001}) for _ in range(3)]
        assert [each.status_code for each in made] == [201, 201, 429]
        assert "tokens_per_key" in made[2].json()["detail"]
        served.close()


def test_an_admins_token_makes_nothing_that_stays(quiet: Served) -> None:
    admin = quiet.http(quiet.key(role="admin"))
    token = quiet.http(admin.post("/v1/tokens", json={"role": "admin"}).json()["token"])
    assert token.get("/v1/queue/stats").status_code == 200
    assert token.get("/v1/keys").status_code == 403
    assert token.get("/v1/audit").status_code == 403
    assert token.post("/v1/keys", json={"tenant": "x", "role": "reader"}).status_code == 403


def test_a_token_for_some_kinds_stays_with_those(quiet: Served, ev: Evervec) -> None:
    for kind in ("note", "secret"):
        ev.add(kind, f"a {kind}", id="1")
    ev.process_all()
    writer = quiet.http(quiet.key())
    made = writer.post("/v1/tokens", json={"role": "writer", "kinds": ["note"]}).json()
    http = quiet.http(made["token"])
    batch = {"Content-Type": "application/x-ndjson"}
    line = '{"kind": "%s", "id": "2", "text": "new"}'
    ticket = {"id": "1", "job_id": 1, "seq": 1}

    def tried(kind: str) -> list[int]:
        return [
            http.get(f"/v1/records/{kind}/1").status_code,
            http.get(f"/v1/records/{kind}/1/history").status_code,
            http.get("/v1/records", params={"kind": kind}).status_code,
            http.post("/v1/search", json={"query": "a", "kind": kind}).status_code,
            http.post("/v1/records", json=json.loads(line % kind)).status_code,
            http.post("/v1/records/batch", content=line % kind, headers=batch).status_code,
            http.delete(f"/v1/records/{kind}/1").status_code,
        ]

    assert tried("note") == [200, 200, 200, 200, 202, 200, 202]
    assert tried("secret") == [403] * 7
    assert ev.get("secret", "1") is not None
    assert ev.get("secret", "2") is None
    assert http.post("/v1/wait", json={"ticket": {**ticket, "kind": "secret"}}).status_code == 403
    others = [
        ("GET", "/v1/records", None), ("POST", "/v1/search", {"query": "a"}),
        ("GET", "/v1/jobs", None), ("GET", "/v1/jobs/1", None), ("GET", "/metrics", None),
        ("GET", "/v1/queue/stats", None), ("POST", "/v1/queue/pause", None),
        ("POST", "/v1/queue/purge", {"status": "done", "older_than": 0}),
        ("GET", "/v1/versions", None), ("POST", "/v1/verify", None),
        ("POST", "/v1/jobs/1/retry", None), ("POST", "/v1/tokens", {}),
    ]  # fmt: skip
    for method, path, body in others:
        assert http.request(method, path, json=body).status_code == 403, path


def test_what_changes_something_is_noted_with_who_did_it(quiet: Served, ev: Evervec) -> None:
    ev.add("note", "it stays", id="3")
    ev.process_all()
    ev.add("note", "as it was", id="1")
    job = fail_for_good(ev, "1").job_id
    ev.add("note", "later", id="2", delay=1000)
    other = ev.queue.jobs()[-1].job_id
    made = Keys(ev.store).create("default", "ann", "writer")
    http, admin = quiet.http(made.key), quiet.http(quiet.key(role="admin", agent="root"))
    asked: list[tuple[httpx.Client, str, str, Any]] = [
        (http, "PATCH", f"/v1/jobs/{job}", {"priority": 9}),
        (http, "POST", f"/v1/jobs/{job}/retry", None),
        (http, "POST", f"/v1/jobs/{other}/cancel", None),
        (http, "POST", "/v1/queue/retry-failed", {}),
        (http, "POST", "/v1/queue/recover-stuck", {}),
        (http, "POST", "/v1/queue/purge", {"status": "failed", "older_than": 0}),
        (http, "POST", "/v1/queue/pause", None),
        (http, "POST", "/v1/queue/resume", None),
        (http, "POST", "/v1/verify", {"repair": True}),
        (http, "DELETE", "/v1/records/note/1", None),
        (http, "POST", "/v1/tokens", {}),
        (admin, "POST", "/v1/migrations", {"embedder": "hashing:64"}),
        (admin, "POST", "/v1/migrations/cancel", None),
        (admin, "POST", "/v1/keys", {"tenant": "acme", "role": "reader"}),
        (admin, "POST", f"/v1/keys/{made.info.id}/rotate", None),
        (admin, "POST", f"/v1/keys/{made.info.id}/revoke", None),
    ]
    for n, (client, method, path, body) in enumerate(asked):
        id = {"X-Request-Id": f"request-{n}"}
        assert client.request(method, path, json=body, headers=id).is_success, path
    http_reads = quiet.http(quiet.key())
    http_reads.get("/v1/records")
    http_reads.delete("/v1/records/note/none")  # nothing was done
    page = admin.get("/v1/audit?limit=10").json()
    rest = admin.get("/v1/audit", params={"cursor": page["cursor"]}).json()
    entries = (page["entries"] + rest["entries"])[::-1]
    assert rest["cursor"] is None
    assert [entry["action"] for entry in entries] == [
        "job.priority", "job.retry", "job.cancel", "queue.retry-failed", "queue.recover-stuck",
        "queue.purge", "queue.pause", "queue.resume", "index.repair", "record.delete",
        "token.create", "migration.begin", "migration.cancel", "key.create", "key.rotate",
        "key.revoke",
    ]  # fmt: skip
    assert [entry["request_id"] for entry in entries] == [f"request-{n}" for n in range(16)]
    assert {entry["outcome"] for entry in entries} == {"done"}
    assert {entry["client"] for entry in entries} == {"127.0.0.1"}
    deleted = entries[9]
    assert (deleted["key_id"], deleted["agent"], deleted["tenant"], deleted["target"]) == (
        made.info.id, "ann", "default", "note/1",
    )  # fmt: skip
    assert {(e["agent"], e["tenant"]) for e in entries[11:]} == {("root", "*")}
    assert [e["action"] for e in admin.get("/v1/audit?action=key.revoke").json()["entries"]] == [
        "key.revoke"
    ]


def test_a_failure_is_noted_too(
    quiet: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object, **__: object) -> None:
        raise evervec.StoreError("away")

    ev.add("note", "x", id="1")
    admin = quiet.http(quiet.key(role="admin"))
    monkeypatch.setattr(ev.store.changes, "delete", away)
    assert admin.delete("/v1/records/note/1").status_code == 503
    (entry,) = admin.get("/v1/audit").json()["entries"]
    assert (entry["action"], entry["outcome"]) == ("record.delete", "failed (503)")


def test_old_entries_and_tokens_are_swept(serve: Serve) -> None:
    now = [1_000_000.0]
    settings: dict[str, Any] = {"clock": lambda: now[0], "keep_audit_days": 1}
    with evervec.open("memory:", embedder="hashing", **settings) as ev:
        served = serve(ev)
        key = served.http(served.key(role="admin"))
        key.post("/v1/tokens", json={})
        now[0] += 90_000
        key.post("/v1/tokens", json={})
        served.app.state.service._purge()
        assert len(key.get("/v1/audit").json()["entries"]) == 1
        assert ev.store.service.forget_tokens(1e12) == 1
        served.close()


def chunk(text: str) -> bytes:
    return f"{len(text):x}\r\n{text}\r\n".encode()


@pytest.mark.usefixtures("brief_linger")
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_batch_ends_when_its_key_is_revoked(quiet: Served, ev: Evervec, goes_on: bool) -> None:
    made = Keys(ev.store).create("default")
    head = (
        "POST /v1/records/batch?kind=note HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {made.key}\r\nContent-Type: application/x-ndjson\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    host, port = quiet.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), 30) as conn:
        conn.sendall(head.encode() + chunk('{"id": "0", "text": "first"}\n'))
        data = b""
        while b'"id":"0"' not in data:
            data += conn.recv(65536)
        Keys(ev.store).revoke(made.info.id)
        stop = threading.Event()

        def send() -> None:
            n = 0
            while not stop.wait(0.02):
                n += 1
                try:
                    conn.sendall(chunk(json.dumps({"id": str(n), "text": "more"}) + "\n"))
                except OSError:
                    return

        sender = threading.Thread(target=send)
        if goes_on:
            sender.start()
        while b"0\r\n\r\n" not in data[-7:]:
            part = conn.recv(65536)
            assert part, "the answer must come to its end"
            data += part
        stop.set()
        if goes_on:
            sender.join()
    assert b'"status": 401' in data
    assert b"revoked" in data
    until(lambda: not quiet.app.state.service.calls)
    saved = len(ev.records(limit=10_000))
    assert saved == data.count(b'"job_id"') or goes_on


def test_a_wait_ends_when_its_key_is_revoked(quiet: Served, ev: Evervec) -> None:
    made = Keys(ev.store).create("default")
    answered: list[httpx.Response] = []

    def wait_long() -> None:
        body = {"kind": "note", "id": "1", "text": "x", "delay": 1000}
        http = quiet.http(made.key)
        answered.append(http.post("/v1/records", json=body, headers={"Prefer": "wait=50"}))

    waiter = threading.Thread(target=wait_long)
    waiter.start()
    until(lambda: bool(ev.records()))
    Keys(ev.store).revoke(made.info.id)
    waiter.join(20)
    assert [response.status_code for response in answered] == [401]
    assert "revoked" in answered[0].json()["detail"]


def test_short_requests_are_not_looked_after(quiet: Served, ev: Evervec) -> None:
    """Looking after requests costs one query a second for those that last, and none for others."""
    seen: list[object] = []
    service = quiet.app.state.service

    class Counted(Keys):
        def good(self, ids: Iterable[str]) -> dict[str, StoredKey]:
            seen.append(ids)
            return super().good(ids)

    service.revocations._keys = Counted(ev.store)
    http = quiet.http(quiet.key())
    for _ in range(50):
        assert http.get("/v1/records").status_code == 200
    assert len(service.calls) == 0
    assert len(seen) <= 2


def test_a_writer_that_repeats_itself_does_not_fill_the_audit_log(
    quiet: Served, ev: Evervec
) -> None:
    http = quiet.http(quiet.key())
    for n in range(20):
        assert http.post("/v1/queue/pause").is_success
        assert http.post("/v1/queue/retry-failed", json={"max_retries": n}).is_success
        assert http.post(f"/v1/failures/{n:016x}/dismiss").is_success
        body = {"status": "done", "older_than": n}
        assert http.post("/v1/queue/purge", json=body).is_success
        body = {"filter": {"field": n}, "kind": "note"}
        assert http.post("/v1/records/delete", json=body).is_success
    counts = Counter(entry.action for entry in Audit(ev.store).list(AuditChoice(), 1000))
    assert set(counts.values()) == {5}
    assert len(counts) == 5
    service = quiet.app.state.service
    service.audit.end_repeats(None)
    service.audit.write_counted()
    newest = Audit(ev.store).list(AuditChoice(), 5)
    assert {entry.action for entry in newest} == set(counts)
    assert all("the last of 15 in" in entry.outcome for entry in newest)
