"""One request with the longest answer that a tenant can make holds the event loop no longer than a
small one: what is long is encoded, drawn and read in threads.

Each route and each page is asked for the most that it gives, of records with as much metadata as
there may be. Processor time of the loop's own thread is measured, for each of its callbacks.
"""

import json
import sqlite3
from asyncio import Runner
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from threading import get_ident
from typing import Any

import pytest
from fastapi.routing import APIRoute

from evervec import Evervec
from evervec.server.app import _ROUTERS, make_app
from evervec.server.dashboard.paths import SIGN_IN
from evervec.server.keys import Keys
from evervec.server.rate_limits import MemoryLimiter
from evervec.stores.service_values import StoredEntry
from support.dashboard import address, filled, pages
from support.furnished import furnish, furnished
from support.looptime import Held, ask, running, watching

MOST_SECONDS = 0.08
"""of the processor for one callback; before, such answers took 0.2 to 3 s"""
RECORDS, VALUES, ATTEMPTS = 600, 1900, 5000
WORD = "tea"
LARGE = {f"f{n}": n for n in range(VALUES)}
KIND = f"kind {WORD}"
STREAM, HTML = {"accept": "text/event-stream"}, {"accept": "text/html"}
LINES = {"content-type": "application/x-ndjson"}


@dataclass
class Furnished:
    """A service in this process with a store of large answers."""

    ev: Evervec
    app: Any
    runner: Runner
    key: str
    values: dict[str, object]

    def ask(self, method: str, address: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
        content = body if isinstance(body, bytes) else b""
        if body is not None and not content:
            content = json.dumps(body).encode()
        return self.runner.run(ask(self.app, method, address, self.key, content, **headers))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Furnished]:
    folder = tmp_path_factory.mktemp("large")
    with furnished(folder) as ev:
        values = furnish(ev, folder / "store.db", WORD)
        records = ({"id": f"r{n}", "text": f"tea {n}", "metadata": LARGE} for n in range(RECORDS))
        list(ev.add_many(KIND, records))
        ev.add(KIND, "tea and hills. " * 30_000, id="long", metadata=LARGE)
        ev.process_all()
        list(ev.add_many("waits", ({"id": n, "text": f"{n}"} for n in range(1000))))
        add_attempts(folder / "store.db", "long")
        entry = StoredEntry(ev.store.now(), None, "a", "default", "x", "y" * 1000, "done", "1", "")
        ev.store.service.add_audit([entry] * 1000)
        keys = Keys(ev.store)
        for number in range(100):
            keys.create("default", f"agent {number}", "reader")
        key = keys.create("default", "large", "admin").key
        app = make_app(ev, limiter=MemoryLimiter(1e9, 10**9))
        with running(app) as runner:
            values |= {"id": "long", "record": "long"}
            yield Furnished(ev, app, runner, key, values)


def add_attempts(path: Path, id: str) -> None:
    with closing(sqlite3.connect(path)) as conn, conn:
        conn.execute(
            f"""with recursive n (n) as (select 1 union all select n + 1 from n where n < {ATTEMPTS})
            insert into evervec_attempts
                (record, version, seq, started_at, finished_at, attempt, tenant, outcome, worker, error)
            select r.record, 1, r.seq, 1, 2, n.n, r.tenant, 'retry', 'w', printf('%.*c', 500, 'x')
            from evervec_records as r join n where r.id = ?""",
            (id,),
        )


def assert_not_held(
    large: Furnished, method: str, path: str, body: Any = None, **headers: str
) -> bytes:
    # imports and templates are ready then; a live page would have to wait for its next state
    large.ask(method, path, body, **({**headers, **HTML} if headers == STREAM else headers))
    held = Held()
    with watching(held):
        status, found = large.ask(method, path, body, **headers)
    assert status in (200, 202, 404, 406, 422), found[:300]
    assert held.seconds < MOST_SECONDS, f"{held.seconds:.3f} s for {len(found):,} bytes"
    return found


def routes(method: str) -> list[str]:
    found = (route for module in _ROUTERS for route in module.router.routes)
    return sorted(
        route.path
        for route in found
        if isinstance(route, APIRoute) and method in (route.methods or ())
    )


READING: dict[str, Any] = {
    "/v1/search": {"query": "tea", "k": 1000, "mode": "text"},
    "/v1/similar": {"kind": KIND, "id": "r1", "k": 1000},
    "/v1/vectors": {"kind": KIND, "ids": ["long", *(f"r{n}" for n in range(99))]},
    "/v1/records/count": {"by_kind": True},
    "/v1/jobs/find": {"limit": 1000},
    "/v1/wait": {"ticket": {"kind": KIND, "id": "r1", "job_id": 1, "seq": 1}, "wait": 0},
    "/v1/verify": {},
}
"""routes that only read, although they are called with POST"""


@pytest.mark.parametrize("path", routes("GET"))
def test_a_route(large: Furnished, path: str) -> None:
    found = filled(path, large.values)
    assert_not_held(large, "GET", found)
    if path in ("/v1/records", "/v1/jobs", "/v1/failures", "/v1/audit"):
        assert len(assert_not_held(large, "GET", f"{found}?limit=1000")) > 100


@pytest.mark.parametrize("path", READING)
def test_a_route_that_reads_with_post(large: Furnished, path: str) -> None:
    assert_not_held(large, "POST", path, READING[path])


@pytest.mark.parametrize("explain", [True, False])
def test_a_search_with_all_parts(large: Furnished, explain: bool) -> None:
    body = {"query": "tea", "k": 1000, "explain": explain, "mode": "text"}
    found = assert_not_held(large, "POST", "/v1/search", body)
    assert len(found) > 10_000_000
    assert len(json.loads(found)["hits"]) > RECORDS


@pytest.mark.parametrize("path", [path for path in pages() if path != SIGN_IN])
@pytest.mark.parametrize("format", ["html", "csv", "ndjson", "live"])
def test_a_page(large: Furnished, path: str, format: str) -> None:
    asked = {"format": format} if format in ("csv", "ndjson") else {}
    if path == "/ui/records":
        asked["limit"] = "1000"
    found = address(path, large.values, **asked)
    assert_not_held(large, "GET", found, **(STREAM if format == "live" else HTML))


def test_a_page_of_hits(large: Furnished) -> None:
    for asked in ("", "&format=csv"):
        assert_not_held(large, "GET", f"/ui/search?q=tea&k=100&mode=text{asked}", **HTML)


TOOLS: list[tuple[str, dict[str, Any]]] = [
    ("get", {"kind": KIND, "id": "long", "offset": 100_000}),
    ("list", {"limit": 100}),
    ("search", {"query": "tea", "k": 50}),
    ("status", {}),
]


@pytest.mark.parametrize(("tool", "arguments"), TOOLS, ids=[name for name, _ in TOOLS])
def test_a_tool(large: Furnished, tool: str, arguments: dict[str, Any]) -> None:
    params = {"name": tool, "arguments": arguments}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    accept = "application/json, text/event-stream"
    headers = {"accept": accept, "mcp-protocol-version": "2025-11-25"}
    found = assert_not_held(large, "POST", "/mcp", body, **headers)
    assert b'"isError":true' not in found


@pytest.mark.parametrize("line", [b"\n", b" \n"], ids=repr)
def test_a_batch_of_empty_lines(large: Furnished, line: bytes) -> None:
    """A megabyte has a million of them."""
    assert_not_held(large, "POST", "/v1/records/batch", line * (8_000_000 // len(line)), **LINES)


def test_a_long_record_is_made_in_a_thread(
    large: Furnished, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a kind with a model, this is code of the application."""
    threads, draft = list[int](), Evervec.draft

    def drafted(*given: Any) -> Any:
        threads.append(get_ident())
        return draft(*given)

    monkeypatch.setattr(Evervec, "draft", drafted)
    record = {"kind": "drafted", "id": "1", "text": "tea " * 10_000}
    assert large.ask("POST", "/v1/records", record)[0] == 202
    assert get_ident() not in threads
    assert len(threads) == 1


# what they are bounded by
def test_a_page_of_records_ends_by_all_that_is_in_it(large: Furnished) -> None:
    """Metadata counts, too."""
    found = json.loads(large.ask("GET", f"/v1/records?kind=kind%20{WORD}&limit=1000")[1])
    assert 100 < len(found["records"]) < RECORDS
    assert found["cursor"]


def test_a_long_history_has_the_latest_attempts(large: Furnished) -> None:
    path = f"/v1/records/kind%20{WORD}/long/history"
    attempts = json.loads(large.ask("GET", path)[1])["attempts"]
    assert len(attempts) == 1000
    assert [each["attempt"] for each in attempts[-2:]] == [ATTEMPTS - 1, ATTEMPTS]
