"""Alive, ready, and what every answer carries."""

import asyncio
import logging
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec, ProviderUnavailable, StoreError
from evervec.server.readiness import Part
from support.processes import until
from support.service import Serve, Served
from support.world import PATIENCE, Clock, ScriptedEmbedder


def test_what_does_not_answer_is_named(serve: Serve) -> None:
    with evervec.open("memory:", embedder="noop") as ev:
        ready = serve(ev).http().get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert {name: ready.json()[name]["ok"] for name in ("store", "index", "provider")} == {
        "store": True, "index": True, "provider": False,
    }  # fmt: skip


def test_an_outage_of_the_provider_is_told_without_its_reason(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    embedder = ScriptedEmbedder()

    def away(_: object) -> None:
        raise ProviderUnavailable("the key sk-secret was refused")

    embedder.before = away
    with evervec.open("memory:", embedder=embedder) as ev:
        ev.add("note", "text", id="1")
        ev.process_all()
        with caplog.at_level(logging.WARNING):
            ready = serve(ev).http().get("/readyz")
        assert (ready.json()["status"], ready.json()["provider"]["ok"]) == ("degraded", False)
        assert "sk-secret" not in ready.text
        assert "provider" in caplog.text


def ready(served: Served) -> tuple[int, Any]:
    answered = served.http().get("/readyz")
    return answered.status_code, answered.json()


def test_it_is_not_ready_when_the_store_cannot_be_written(
    served: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked() -> None:
        raise StoreError(f"another process has held the write lock of {ev.store.url}")

    monkeypatch.setattr(ev.store, "try_write", locked)
    status, shown = ready(served)
    assert (status, shown["status"], shown["store"]["reason"]) == (503, "down", "unreachable")
    assert str(ev.store.url) not in str(shown)


@pytest.mark.parametrize(("free", "reason"), [(0, "full"), (50_000_000, "low")])
def test_it_is_not_ready_when_the_disk_is_nearly_full(
    served: Served, monkeypatch: pytest.MonkeyPatch, free: int, reason: str
) -> None:
    used = shutil.disk_usage("/")._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: used)
    status, shown = ready(served)
    assert (status, shown["disk"]["ok"], shown["disk"]["reason"]) == (503, False, reason)


def test_a_store_that_hangs_is_named_and_holds_nobody_up(
    served: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ask meanwhile: one thread waits for the store."""
    release, looks = threading.Event(), []

    def hang() -> None:
        looks.append(1)
        release.wait(PATIENCE)

    monkeypatch.setattr(ev.store, "try_write", hang)
    monkeypatch.setattr("evervec.server.readiness._SECONDS", 0.1)
    monkeypatch.setattr(Part.state, "__defaults__", (0.1,))
    try:
        for _ in range(5):
            status, shown = ready(served)
            assert (status, shown["store"]["reason"]) == (503, "timeout")
            assert shown["workers"]["reason"] == "ok"
        assert len(looks) == 1
    finally:
        release.set()
    until(lambda: ready(served)[0] == 200)


def test_a_part_is_looked_at_twice_a_second_at_most() -> None:
    clock, looks = Clock(0.0), []
    part = Part("store", lambda: looks.append(1), clock)

    async def ask() -> None:
        for _ in range(100):
            await part.state()
        assert len(looks) == 1
        clock.move(0.6)
        await asyncio.gather(*(part.state() for _ in range(100)))
        assert len(looks) == 2

    asyncio.run(ask())


def test_a_worker_that_only_fails_is_told_and_comes_back(
    tmp_path: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged records are not embedded meanwhile, so the service is not ready."""
    with evervec.open(
        tmp_path / "store.db", embedder="hashing", backoff_seconds=0.01, poll_seconds=0.01
    ) as ev:
        claim = ev.store.leases.claim

        def broken(*_: object, **__: object) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr(ev.store.leases, "claim", broken)
        served = serve(ev, workers=1)
        served.http().post("/v1/records", json={"kind": "note", "id": "1", "text": "tea"})
        until(lambda: ready(served)[1]["workers"]["reason"] == "failing")
        assert ready(served)[0] == 503
        monkeypatch.setattr(ev.store.leases, "claim", claim)
        until(lambda: ready(served)[0] == 200)
        until(lambda: ev.queue.stats().done == 1)


def test_every_answer_carries_the_requests_id(served: Served) -> None:
    http = served.http()
    for path in ("/healthz", "/v1/records", "/nothing", "/v1/jobs/1"):
        assert http.get(path).headers["x-request-id"]
    named = http.get("/v1/jobs/1", headers={"X-Request-Id": "mine-7"})
    assert named.headers["x-request-id"] == named.json()["request_id"] == "mine-7"
    odd = http.get("/v1/jobs/1", headers={"X-Request-Id": "a b\tc<script>"})
    assert odd.headers["x-request-id"] != "a b\tc<script>"


def test_a_mistake_of_the_services_own_is_a_problem_document_too(
    served: Served, ev: Evervec, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a secret of the inside")

    monkeypatch.setattr(ev.store.records, "get", broken)
    answered = served.http().get("/v1/records/note/1")
    assert answered.status_code == 500
    assert answered.headers["content-type"] == "application/problem+json"
    assert "secret" not in answered.text
    assert answered.json()["request_id"] in caplog.text
    assert served.http().get("/v1/records").status_code == 200
