"""FastAPI: the store opens with the application, and each request has its tenant."""

import asyncio
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import httpx
import pytest
from fastapi import Depends, FastAPI
from fastapi.testclient import TestClient

import evervec
from evervec import AsyncEvervec, InvalidArgument
from evervec.integrations.fastapi import EvervecDependency
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


def test_a_store_that_was_not_opened_says_what_is_missing(tmp_path: Path) -> None:
    search = EvervecDependency(tmp_path / "notes.db", embedder="hashing")
    with (
        TestClient(application(search)) as client,
        pytest.raises(InvalidArgument, match="lifespan"),
    ):
        client.get("/search", params={"q": "tea"})


def started(*args: str, cwd: Path, **environ: str) -> subprocess.Popen[bytes]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("EVERVEC_")}
    return subprocess.Popen([sys.executable, "-m", *args], cwd=cwd, env=clean | environ)


def test_the_example_serves_a_crowd_while_its_worker_is_killed(tmp_path: Path) -> None:
    place = {"EVERVEC_STORE": str(tmp_path / "notes.db"), "EVERVEC_EMBEDDER": "hashing"}
    lease = {"EVERVEC_LEASE_SECONDS": "1"}
    port = free_port()
    app = started(
        "uvicorn", "app:app", "--port", str(port), "--log-level", "warning",
        cwd=EXAMPLE, NOTES_WORKER="0", **place,
    )  # fmt: skip
    workers = [started("evervec", "worker", cwd=tmp_path, **place, **lease)]
    try:
        until_answers(f"http://127.0.0.1:{port}/docs")
        asyncio.run(_crowd(f"http://127.0.0.1:{port}"))
        workers[0].kill()
        workers.append(started("evervec", "worker", cwd=tmp_path, **place, **lease))
        with evervec.open(tmp_path / "notes.db", embedder="hashing") as ev:
            until(
                lambda: (
                    ev.queue_of(None).stats().pending + ev.queue_of(None).stats().processing == 0
                )
            )
            assert ev.verify(all_tenants=True).complete
            assert {team: ev.of(team).count() for team in ("blue", "red")} == {
                "blue": 60,
                "red": 60,
            }
            assert ev.of("red").search("note 7 of red", k=1, mode="semantic")[0].id == "7"
    finally:
        for process in (app, *workers):
            process.terminate()
            process.wait(60)


async def _crowd(url: str) -> None:
    """Notes and searches of two teams, all at once."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def note(team: str, n: int) -> None:
            text = {"text": f"note {n} of {team}", "author": f"a{n % 3}"}
            written = await http.put(f"/notes/{n}", json=text, headers={"x-team": team})
            assert written.status_code == 200
            read = await http.get(f"/notes/{n}", headers={"x-team": team})
            assert read.json()["text"] == text["text"]
            found = await http.get("/search", params={"q": f"{n}"}, headers={"x-team": team})
            assert all(team in hit["text"] for hit in found.json())

        await asyncio.gather(*(note(team, n) for team in ("blue", "red") for n in range(60)))
        assert (await http.get("/search", params={"q": "1"})).status_code == 401


def until_answers(url: str) -> None:
    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(url, timeout=5.0).is_success
        return False

    until(answers, f"{url} to answer")
