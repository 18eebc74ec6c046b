"""`/mcp` in the service: the keys, roles, limits and deadlines of every other request."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from mcp.shared.exceptions import MCPError

import evervec
from evervec import Evervec
from evervec.server.app import make_app
from evervec.server.audit import Audit
from evervec.server.keys import Keys
from evervec.server.rate_limits import MemoryLimiter
from evervec.stores.service_values import AuditChoice
from support.assistants import PickyEmbedder, connected
from support.processes import until
from support.service import Serve, Served
from support.world import Clock

READING = ["search", "get", "list", "status"]
HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    """The message of a call."""
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def test_an_assistant_remembers_finds_and_forgets(served: Served, mode: str) -> None:
    key = served.key()
    with connected(f"{served.url}/mcp", mode, key) as assistant:
        saved = assistant.call("remember", text="Tea is grown in Assam.", id="te/a", kind="My tea")
        assert saved["searchable"]
        assert not assistant.call("remember", text="Tea is grown in Assam.", id="te/a",
                                  kind="My tea")["changed"]  # fmt: skip
        (hit,) = assistant.call("search", query="tea", filter={}, min_relevance=0.1)["hits"]
        assert hit["id"] == "te/a"
        assert assistant.call("get", kind="My tea", id="te/a")["found"]
        assert assistant.call("list", kind="My tea")["after"] is None
        status = assistant.call("status")
        assert (status["kinds"], status["waiting"]) == ([{"kind": "My tea", "records": 1}], 0)
        uri = "evervec://My%20tea/te%2Fa"
        assert json.loads(assistant.resource(uri))["record"]["kind"] == "My tea"
        assert uri in assistant.prompt("answer", question="tea")
        gone = assistant.call("forget", kind="My tea", id="te/a")
        assert (gone["forgotten"], gone["erased"]) == (True, True)
        assert assistant.call("forget", kind="My tea", id="te/a")["forgotten"] is False
        assert assistant.call("search", query="tea")["hits"] == []
        with pytest.raises(MCPError, match="does not exist"):
            assistant.resource(uri)
    deleted = [e for e in Audit(served.ev.store).list(AuditChoice()) if e.action == "record.delete"]
    assert [entry.target for entry in deleted] == ["My tea/te/a"]


def test_a_readers_key_lists_and_calls_only_what_reads(served: Served, mode: str) -> None:
    with connected(f"{served.url}/mcp", mode, served.key(role="reader")) as assistant:
        assert list(assistant.tools()) == READING
        for tool in ("remember", "forget"):
            with pytest.raises(MCPError, match="there is no tool"):
                assistant.call(tool, kind="note", id="x", text="x")
    assert served.ev.count() == 0


def test_a_token_for_some_kinds_sees_only_these(served: Served) -> None:
    for kind in ("a", "b", "c"):
        served.ev.add(kind, f"tea of {kind}", id="1", wait=20)
    writer = served.key()
    token = served.http(writer).post("/v1/tokens", json={"role": "writer", "kinds": ["a", "b"]})
    with connected(f"{served.url}/mcp", key=token.json()["token"]) as assistant:
        assert {h["kind"] for h in assistant.call("search", query="tea")["hits"]} == {"a", "b"}
        assert [r["kind"] for r in assistant.call("list")["records"]] == ["a", "b"]
        status = assistant.call("status")
        assert [k["kind"] for k in status["kinds"]] == ["a", "b"]
        assert status["waiting"] is None
        assert "not offered here" in assistant.complaint("get", kind="c", id="1")
        assert assistant.call("remember", text="more")["kind"] == "a"
    served.ev.add("c", "still there", id="1")


def test_a_tenant_reaches_nothing_of_another(served: Served, mode: str) -> None:
    other = served.ev.of("other")
    other.add("note", "the other tenant's tea", id="secret", wait=20)
    with connected(f"{served.url}/mcp", mode, served.key("mine")) as assistant:
        assert assistant.call("search", query="tea")["hits"] == []
        assert assistant.call("get", kind="note", id="secret")["found"] is False
        assert assistant.call("forget", kind="note", id="secret")["forgotten"] is False
        assert assistant.call("status")["kinds"] == []
        with pytest.raises(MCPError):
            assistant.resource("evervec://note/secret")
        assistant.call("remember", text="mine", id="secret")
    found = other.get("note", "secret")
    assert found is not None
    assert found.text == "the other tenant's tea"
    http = served.http(served.key("mine"))
    answered = http.post("/mcp?tenant=other", json=called("list"), headers=HEADERS).json()
    assert answered["result"]["isError"]
    assert "another tenant" in answered["result"]["content"][0]["text"]
    admin = served.http(served.key("mine", "admin"))
    answered = admin.post("/mcp?tenant=other", json=called("list"), headers=HEADERS).json()
    assert answered["result"]["structuredContent"]["records"][0]["id"] == "secret"
    assert admin.post("/mcp?tenat=other", json=called("list"), headers=HEADERS).status_code == 422


def test_a_missing_wrong_or_revoked_key_opens_nothing(served: Served) -> None:
    key = served.key()
    assert served.http().post("/mcp", json=called("list"), headers=HEADERS).status_code == 401
    wrong = served.http("ev_wrong").post("/mcp", json=called("list"), headers=HEADERS)
    assert wrong.status_code == 401
    assert "WWW-Authenticate" in wrong.headers
    keys = Keys(served.ev.store)
    keys.revoke(next(k.id for k in keys.list()))
    revoked = served.http(key).post("/mcp", json=called("list"), headers=HEADERS)
    assert revoked.status_code == 401


def test_a_key_that_is_revoked_while_a_call_waits_ends_the_call(ev: Evervec, serve: Serve) -> None:
    served = serve(ev)  # without a worker: it would wait for a minute
    key = served.key()
    http = served.http(key)
    with ThreadPoolExecutor(1) as pool:
        message = called("remember", text="tea", id="tea", wait=60)
        waiting = pool.submit(http.post, "/mcp", json=message, headers=HEADERS)
        until(lambda: ev.get("note", "tea") is not None, "the record to be saved")
        Keys(ev.store).revoke(Keys(ev.store).list()[0].id)
        answered = waiting.result(50)
    assert answered.status_code == 401


def test_a_call_waits_no_longer_than_its_deadline(ev: Evervec, serve: Serve) -> None:
    http = serve(ev).http()
    headers = {**HEADERS, "Request-Timeout": "0.3"}
    message = called("remember", text="tea", id="tea", wait=60)
    answered = http.post("/mcp", json=message, headers=headers).json()["result"]
    assert answered["structuredContent"]["saved"] is True
    assert answered["structuredContent"]["searchable"] is False
    assert ev.get("note", "tea") is not None


def test_the_rate_limit_counts_messages(tmp_path: Path, serve: Serve) -> None:
    with evervec.open(tmp_path / "s.db", embedder="hashing", rate_burst=3,
                      rate_per_second=0.01) as ev:  # fmt: skip
        served = serve(ev)
        http = served.http(served.key())
        answers = [http.post("/mcp", json=called("status"), headers=HEADERS) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        assert "RateLimit" in answers[0].headers
        served.close()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        (b'{"jsonrpc": "2.0"}', 400),
        (b"[" * 5000, 400),
        (b"[" * 200_000, 422),
        (json.dumps([called("list")] * 3).encode(), 400),
        (json.dumps(called("remember", text="x" * 1_000_001)).encode(), 413),
        (json.dumps(called("search", query="x", filter={"a": [1] * 200_000})).encode(), 422),
    ],
)
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28", "1999-01-01"])
def test_hostile_messages_are_refused(
    served: Served, body: bytes, status: int, version: str
) -> None:
    headers = {**HEADERS, "MCP-Protocol-Version": version, "Content-Type": "application/json"}
    answered = served.http().post("/mcp", content=body, headers=headers)
    assert answered.status_code == status
    assert len(answered.content) < 3000
    assert served.http().get("/readyz").status_code == 200


def test_hostile_arguments_are_refused_as_by_the_other_routes(served: Served) -> None:
    http = served.http()
    deep: Any = "x"
    for _ in range(100):
        deep = [deep]
    for tool, asked, why in (
        ("remember", {"text": "a\0b"}, "NUL"),
        ("remember", {"text": "x", "metadata": {"a": deep}}, "nested"),
        ("search", {"query": "a\0b"}, "NUL"),
        ("remember", {"text": "x", "id": "i" * 5000}, "id"),
        ("get", {"kind": "note", "id": "\0"}, "id"),
        ("get", {"kind": "../keys", "id": "../../v1/keys"}, None),
        ("get", {"kind": "note", "id": "x/history"}, None),
    ):
        answered = http.post("/mcp", json=called(tool, **asked), headers=HEADERS).json()["result"]
        if why is None:
            assert answered["structuredContent"]["found"] is False
        else:
            assert answered["isError"]
            assert why in answered["content"][0]["text"]
    assert served.ev.count() == 0


def test_there_are_no_streams_and_no_sessions(served: Served) -> None:
    http = served.http()
    for method in ("GET", "DELETE", "PUT"):
        answered = http.request(method, "/mcp", headers=HEADERS)
        assert (answered.status_code, answered.headers["allow"]) == (405, "POST")
    answered = http.post("/mcp", json=called("status"), headers=HEADERS)
    assert "mcp-session-id" not in answered.headers
    assert answered.headers["content-type"] == "application/json"


def test_without_keys_only_clients_on_this_machine_are_served(served: Served) -> None:
    for strange in ({"Host": "evil.example"}, {"Origin": "http://evil.example"},
                    {"X-Forwarded-For": "10.0.0.1"}):  # fmt: skip
        answered = served.http().post("/mcp", json=called("list"), headers={**HEADERS, **strange})
        assert answered.status_code == 403


def test_messages_are_counted_as_a_route(served: Served) -> None:
    http = served.http()
    http.post("/mcp", json=called("status"), headers=HEADERS)
    # a response is counted after it was sent
    until(lambda: 'route="/mcp"' in http.get("/metrics").text, "the message to be counted")


def test_a_mounted_service_serves_it_without_a_lifespan(ev: Evervec) -> None:
    outer = FastAPI()
    outer.mount("/deep/search", make_app(ev, workers=1))
    key = Keys(ev.store).create("default").key
    with TestClient(outer, base_url="http://127.0.0.1") as http:
        headers = {**HEADERS, "Authorization": f"Bearer {key}"}
        answered = http.post("/deep/search/mcp", json=called("remember", text="x", id="a/b"),
                             headers=headers).json()["result"]  # fmt: skip
        assert answered["structuredContent"]["searchable"]
        got = http.post("/deep/search/mcp", json=called("get", kind="note", id="a/b"),
                        headers=headers).json()["result"]  # fmt: skip
        assert got["structuredContent"]["found"]


def test_without_the_package_the_path_says_what_to_install(
    ev: Evervec, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "evervec.integrations.mcp.endpoint", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server.streamable_http_manager", None)
    answered = serve(ev).http().post("/mcp", json=called("list"), headers=HEADERS)
    assert answered.status_code == 404
    assert "pip install 'evervec[mcp]'" in answered.json()["detail"]


def test_neither_the_library_nor_the_service_imports_the_sdk_before_it_is_used() -> None:
    code = (
        "import sys, evervec, evervec.facade, evervec.client, evervec.cli.app, evervec.server.app; "
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('mcp', 'mcp_types')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_failed_records_reason_is_not_told_to_tenants(tmp_path: Path, serve: Serve) -> None:
    """A provider's answer may name its customer: the note has only what the key may see."""
    with evervec.open(tmp_path / "s.db", embedder=PickyEmbedder()) as ev:
        served = serve(ev, workers=1)
        http = served.http(served.key())
        message = called("remember", text="poison", id="a")
        answered = http.post("/mcp", json=message, headers=HEADERS).json()["result"]
        assert answered["structuredContent"]["searchable"] is False
        assert "could not be embedded" in answered["structuredContent"]["note"]
        assert "12345" not in json.dumps(answered)
        body = {"kind": "note", "text": "poison", "id": "b"}
        plain = http.post("/v1/records", json=body, headers={"Prefer": "wait=20"})
        assert plain.json()["status"] == "failed"
        assert "12345" not in plain.text
        served.close()


def test_status_counts_all_kinds_with_one_call(ev: Evervec, serve: Serve) -> None:
    """Not with one for each, of which there may be hundreds."""
    for number in range(12):
        ev.add(f"kind {number:02}", "tea", id="1")
    ev.of("other").add("kind 01", "tea", id="2")
    served = serve(ev, limiter=MemoryLimiter(rate=1, burst=100, clock=Clock()))
    key = served.key(role="reader")
    with connected(f"{served.url}/mcp", key=key) as assistant:
        status = assistant.call("status")
    assert [each["records"] for each in status["kinds"]] == [1] * 12
    reader = served.http(key)
    assert left(reader, called("status")) - left(reader, called("status")) == 1


def test_many_calls_of_one_message_and_long_records_are_charged(
    tmp_path: Path, serve: Serve
) -> None:
    with evervec.open(tmp_path / "s.db", embedder="hashing") as ev:
        for number in range(30):
            ev.add(f"k{number}", "tea", id="1")
        ev.add("long", "x" * 1_000_000, id="1")
        served = serve(ev, limiter=MemoryLimiter(rate=1, burst=100, clock=Clock()))
        kinds = [f"k{number}" for number in range(30)]
        made = served.http(served.key()).post("/v1/tokens", json={"role": "reader", "kinds": kinds})
        limited = served.http(made.json()["token"])
        assert left(limited, called("status")) - left(limited, called("status")) == 1 + 30 - 4
        reader = served.http(served.key(agent="b", role="reader"))
        long = called("get", kind="long", id="1", offset=999_000)
        assert left(reader, long) - left(reader, long) == 1 + 15
        served.close()


def left(http: httpx.Client, message: dict[str, Any]) -> int:
    """The requests that were left when a message came."""
    answer = http.post("/mcp", json=message, headers=HEADERS)
    assert answer.status_code == 200
    assert not answer.json()["result"]["isError"]
    found = re.search(r";r=(\d+);", answer.headers["ratelimit"])
    assert found
    return int(found[1])
