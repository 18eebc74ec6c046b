"""Alive, ready, and what every answer carries."""

import logging

import pytest

import evervec
from evervec import Evervec, ProviderUnavailable
from support.service import Serve, Served
from support.world import ScriptedEmbedder


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

    monkeypatch.setattr(ev.store, "get", broken)
    answered = served.http().get("/v1/records/note/1")
    assert answered.status_code == 500
    assert answered.headers["content-type"] == "application/problem+json"
    assert "secret" not in answered.text
    assert answered.json()["request_id"] in caplog.text
    assert served.http().get("/v1/records").status_code == 200
