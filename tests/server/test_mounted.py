"""The service inside another application, as docs/service.md shows it."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import evervec
from evervec import Client, Evervec, StoreError
from evervec.server.app import make_app
from evervec.server.keys import Keys
from support.processes import until
from support.service import Serve, free_port
from support.snippets import read_blocks

PAGE = Path(__file__).parents[2] / "docs" / "service.md"


def test_the_module_of_the_page_serves_records_and_embeds_them(tmp_path: Path) -> None:
    (module,) = [b.content for b in read_blocks(PAGE) if "app.mount(" in b.content]
    (tmp_path / "module.py").write_text(module)
    port, log = free_port(), tmp_path / "log"
    url = f"http://127.0.0.1:{port}/search"
    with log.open("wb") as out:
        command = [sys.executable, "-m", "uvicorn", "module:app", "--port", str(port)]
        server = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        until(lambda: _status(f"{url}/readyz") == 200, "the service to be ready")
        with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
            key = Keys(ev.store).create("default").key
        with Client(url, key) as client:
            ticket = client.add("note", "Tea is grown on hills.", id="tea", wait=20)
            assert client.search("tea", after=ticket, mode="semantic")[0].id == "tea"
    finally:
        server.terminate()
        server.wait(60)
    assert "Traceback" not in log.read_text()
    assert "Application shutdown complete" in log.read_text()


def _status(url: str) -> int:
    try:
        return httpx.get(url, timeout=5, verify=False).status_code
    except httpx.TransportError:
        return 0


def test_mounted_without_its_lifespan_its_worker_starts_with_the_first_request(
    ev: Evervec,
) -> None:
    outer = FastAPI()
    inner = make_app(ev, workers=1)
    outer.mount("/deep/search", inner)
    key = Keys(ev.store).create("default").key
    with TestClient(outer, base_url="http://127.0.0.1") as http:
        ready = http.get("/deep/search/readyz")
        assert (ready.status_code, ready.json()["workers"]["ok"]) == (200, True)
        body = {"kind": "note", "id": "1", "text": "alpha"}
        headers = {"Prefer": "wait=20", "Authorization": f"Bearer {key}"}
        added = http.post("/deep/search/v1/records", json=body, headers=headers)
        assert added.status_code == 201
        inner.state.background._drain()  # as at the end of the process
    assert ev.queue.stats().done == 1


def test_open_paths_are_open_where_it_is_mounted_and_others_are_not(ev: Evervec) -> None:
    outer = FastAPI()
    outer.mount("/search", make_app(ev))
    with TestClient(outer, base_url="http://example.com") as http:
        assert http.get("/search/healthz").status_code == 200
        assert http.get("/search/readyz").status_code == 200
        assert http.get("/search/openapi.json").json()["servers"] == [{"url": "/search"}]
        assert http.get("/search/v1/records").status_code == 403


def test_it_is_not_ready_when_a_worker_that_should_run_has_stopped(
    ev: Evervec, serve: Serve
) -> None:
    served = serve(ev, workers=2)
    http = served.http()
    assert http.get("/readyz").json()["workers"]["ok"]
    first = served.app.state.background._workers[0]
    first.stop(0.0)
    until(lambda: http.get("/readyz").status_code == 503, "it to be told")
    ready = http.get("/readyz").json()
    assert (ready["status"], ready["workers"]["reason"]) == ("down", "stopped")


def test_a_worker_inside_outlives_its_stores_absence(
    ev: Evervec, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve(ev, workers=1)
    tried: list[int] = []

    def away() -> bool:
        tried.append(1)
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(ev._housekeeping, "look_for_lost", away)
        until(lambda: bool(tried), "the worker to meet it")
    with served.http() as http:
        body = {"kind": "note", "id": "1", "text": "alpha"}
        added = http.post("/v1/records", json=body, headers={"Prefer": "wait=20"})
        assert added.status_code == 201
        assert http.get("/readyz").status_code == 200
