"""FastAPI: the store opens with the application, and each request has its tenant."""

import asyncio
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI, WebSocket
from fastapi.testclient import TestClient

import evervec
from evervec import AsyncEvervec, IndexUnavailable
from evervec.errors import StoreClosed
from evervec.integrations.fastapi import EvervecDependency, install_errors
from support.processes import until
from support.service import free_port

EXAMPLE = Path(__file__).parents[2] / "examples" / "fastapi_notes"


def application(search: EvervecDependency, **options: object) -> FastAPI:
    app = FastAPI(**options)  # type: ignore[arg-type]

    @app.get("/healthz")
    async def alive() -> str:
        return "yes"

    @app.put("/{id}")
    async def add(id: str, text: str, ev: Annotated[AsyncEvervec, Depends(search)]) -> int:
        return (await ev.add("note", text, id=id, wait=30)).seq

    @app.get("/search")
    async def find(q: str, ev: Annotated[AsyncEvervec, Depends(search)]) -> list[str]:
        return [hit.id for hit in await ev.search(q)]

    @app.websocket("/chat")
    async def chat(socket: WebSocket, ev: Annotated[AsyncEvervec, Depends(search)]) -> None:
        await socket.accept()
        await socket.send_json([hit.id for hit in await ev.search(await socket.receive_text())])

    return app


def test_the_worker_runs_and_is_drained_with_the_application(tmp_path: Path) -> None:
    search = EvervecDependency(tmp_path / "notes.db", embedder="hashing")
    with TestClient(application(search, lifespan=search.lifespan)) as client:
        assert client.put("/tea", params={"text": "Tea grows"}).json() > 0
        assert client.get("/search", params={"q": "tea"}).json() == ["tea"]
    with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
        assert ev.verify().complete


def test_each_request_sees_its_tenant_only(tmp_path: Path) -> None:
    async def tenant(request: object) -> str:
        await asyncio.sleep(0)
        return request.headers["x-team"]  # type: ignore[attr-defined, no-any-return]

    search = EvervecDependency(tmp_path / "notes.db", embedder="hashing", tenant=tenant)
    with TestClient(application(search, lifespan=search.lifespan)) as client:
        client.put("/1", params={"text": "Tea grows"}, headers={"x-team": "blue"})
        for team, found in (("blue", ["1"]), ("red", [])):
            asked = client.get("/search", params={"q": "tea"}, headers={"x-team": team})
            assert asked.json() == found
            with client.websocket_connect("/chat", headers={"x-team": team}) as chat:
                chat.send_text("tea")
                assert chat.receive_json() == found


def test_a_store_that_was_not_opened_says_what_is_missing(tmp_path: Path) -> None:
    search = EvervecDependency(tmp_path / "notes.db", embedder="hashing")
    with (
        TestClient(application(search)) as client,
        pytest.raises(StoreClosed, match="lifespan"),
    ):
        client.get("/search", params={"q": "tea"})


def test_errors_are_answered_with_a_problem_document(tmp_path: Path) -> None:
    search = EvervecDependency(tmp_path / "notes.db", embedder="hashing")
    app = application(search, lifespan=search.lifespan)
    install_errors(app)

    @app.get("/away")
    async def away() -> int:
        raise IndexUnavailable("secret-host:1 does not answer")

    @app.get("/defect")
    async def defect() -> int:
        raise ZeroDivisionError

    with TestClient(app, raise_server_exceptions=False) as client:
        for params, detail in (({"text": ""}, "text: is empty"), ({"text": " "}, "text: is empty")):
            refused = client.put("/tea", params=params)
            assert (refused.status_code, refused.json()["detail"]) == (422, detail)
            assert refused.headers["content-type"] == "application/problem+json"
            assert refused.json()["type"] == "urn:evervec:InvalidRecord"
        missing = client.get("/away")
        assert (missing.status_code, missing.headers["retry-after"]) == (503, "1")
        assert "secret-host" not in missing.text
        assert client.get("/defect").status_code == 500
    closed = TestClient(app, raise_server_exceptions=False).get("/search", params={"q": "tea"})
    assert closed.status_code == 503


def test_what_the_example_is_wrongly_asked_for_is_not_its_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVERVEC_STORE", str(tmp_path / "notes.db"))
    monkeypatch.setenv("EVERVEC_EMBEDDER", "hashing")
    app = runpy.run_path(str(EXAMPLE / "app.py"))["app"]
    team = {"x-team": "blue"}
    with TestClient(app, headers=team) as client:
        assert client.put("/notes/1", json={"text": ""}).status_code == 422
        assert client.put("/notes/1", json={"text": "tea"}).status_code == 200
        for k in (0, -1, 10**9):
            assert client.get("/search", params={"q": "tea", "k": k}).status_code == 422


def started(*args: str, cwd: Path, **environ: str) -> subprocess.Popen[bytes]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
    return subprocess.Popen([sys.executable, "-m", *args], cwd=cwd, env=clean | environ)


EACH = 150
"""notes of each team"""


def test_the_example_serves_a_crowd_while_its_worker_is_killed(tmp_path: Path) -> None:
    place = {"EVERVEC_STORE": str(tmp_path / "notes.db"), "EVERVEC_EMBEDDER": "hashing"}
    lease = {"EVERVEC_LEASE_SECONDS": "1"}
    port = free_port()
    app = started(
        "uvicorn", "app:app", "--port", str(port), "--log-level", "warning",
        cwd=EXAMPLE, NOTES_WORKER="0", **place,
    )  # fmt: skip
    slow = {"EVERVEC_BATCH_SIZE": "1", "EVERVEC_CONCURRENCY": "1"}  # it is killed on the way
    workers = [started("evervec", "worker", cwd=tmp_path, **place, **lease, **slow)]
    try:
        until_answers(f"http://127.0.0.1:{port}/docs")
        with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
            left = asyncio.run(_crowd(f"http://127.0.0.1:{port}", lambda: _killed(workers[0], ev)))
            assert left.done > 0
            assert left.processing > 0, "it was killed with work in its hands"
            assert ev.queue_of(None).stats().pending > 0, "nobody works on what came since"
            assert not ev.verify(all_tenants=True).complete
            workers.append(started("evervec", "worker", cwd=tmp_path, **place, **lease))
            until(
                lambda: (
                    ev.queue_of(None).stats().pending + ev.queue_of(None).stats().processing == 0
                )
            )
            assert ev.verify(all_tenants=True).complete
            counts = {team: ev.of(team).count() for team in ("blue", "red")}
            assert counts == {"blue": EACH, "red": EACH}
            assert ev.of("red").search("note 7 of red", k=1, mode="semantic")[0].id == "7"
    finally:
        for process in (app, *workers):
            process.terminate()
            process.wait(60)


def _killed(worker: subprocess.Popen[bytes], ev: evervec.Evervec) -> evervec.Stats:
    """Kill a worker when it has done something and holds a job; returns what was left then."""

    def caught() -> evervec.Stats | None:
        if ev.queue_of(None).stats().done:
            worker.send_signal(signal.SIGSTOP)  # so that it does not end the job meanwhile
            stats = ev.queue_of(None).stats()
            if stats.processing:
                return stats
            worker.send_signal(signal.SIGCONT)
        return None

    left = until(caught, "a job in the hands of the worker")
    worker.kill()
    worker.wait(20)
    assert left is not None
    return left


async def _crowd(url: str, kill: Callable[[], evervec.Stats]) -> evervec.Stats:
    """Notes and searches of two teams, all at once; a kill on the way, and what it left."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def note(team: str, n: int) -> None:
            text = {"text": f"note {n} of {team}", "author": f"a{n % 3}"}
            written = await http.put(f"/notes/{n}", json=text, headers={"x-team": team})
            assert written.status_code == 200
            read = await http.get(f"/notes/{n}", headers={"x-team": team})
            assert read.json()["text"] == text["text"]
            found = await http.get("/search", params={"q": f"{n}"}, headers={"x-team": team})
            assert all(team in hit["text"] for hit in found.json())

        async def notes(numbers: range) -> None:
            await asyncio.gather(*(note(team, n) for team in ("blue", "red") for n in numbers))

        killing = asyncio.create_task(asyncio.to_thread(kill))
        await notes(range(EACH // 2))
        left = await killing
        await notes(range(EACH // 2, EACH))
        assert (await http.get("/search", params={"q": "1"})).status_code == 401
        return left


def until_answers(url: str) -> None:
    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(url, timeout=5.0).is_success
        return False

    until(answers, f"{url} to answer")
