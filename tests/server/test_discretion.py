"""What tenants learn of failures: which part failed, not where it runs or who pays for it."""

import socket
from pathlib import Path
from typing import Any

import pytest

import evervec
from evervec import Evervec, InvalidInput, ProviderUnavailable
from evervec.embedders.hashing import HashingEmbedder
from evervec.errors import IndexUnavailable, StoreError
from support.service import Serve

SECRETS = ("org-acme", "10.0.0.7", "/var/lib", socket.gethostname())


class Failing(HashingEmbedder):
    """A provider that names its customer and its address."""

    error: Exception = ProviderUnavailable("10.0.0.7: org-acme has no credit")

    def embed(self, texts: Any) -> Any:
        raise self.error


@pytest.fixture
def failing(tmp_path: Path) -> Any:
    embedder = Failing()
    with evervec.open(tmp_path / "store.db", embedder=embedder, max_attempts=1) as ev:
        yield ev, embedder


def test_errors_of_jobs_are_an_admins(failing: tuple[Evervec, Failing], serve: Serve) -> None:
    ev, embedder = failing
    ev.add("note", "tea", id="1")
    ticket = ev.add("note", "rock", id="2")
    embedder.error = InvalidInput([0], "OpenAI rejected the input: org-acme at 10.0.0.7 may not")
    ev.process_all()
    ev.add("note", "sea", id="3")
    embedder.error = ProviderUnavailable("10.0.0.7: org-acme has no credit")
    ev.process_all()
    served = serve(ev)
    paths = (
        "/v1/jobs",
        f"/v1/jobs/{ticket.job_id}",
        "/v1/records/note/2/history",
        f"/v1/jobs/{ticket.job_id}/timeline",
        "/v1/queue/stats",
        "/v1/failures?dismissed=true",
    )
    with served.http(served.key(role="reader")) as http:
        shown = "".join(http.get(path).text for path in paths)
        body = {"ticket": {"kind": "note", "id": "2", "job_id": ticket.job_id, "seq": ticket.seq}}
        shown += http.post("/v1/wait", json=body).text
    assert not [secret for secret in SECRETS if secret in shown]
    assert "the embedding provider rejected this text" in shown
    assert "the embedding provider is unavailable" in shown
    with served.http(served.key(role="admin")) as http:
        shown = "".join(http.get(path).text for path in paths)
    assert "org-acme" in shown


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (StoreError("/var/lib/store.db on 10.0.0.7 is full"), "the store is unavailable"),
        (IndexUnavailable("10.0.0.7 is away"), "the vector index is unavailable"),
        (ProviderUnavailable("org-acme is unknown"), "the embedding provider is unavailable"),
    ],
)
def test_errors_of_the_service_are_an_admins(
    ev: Evervec, serve: Serve, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    served = serve(ev)

    def broken(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(Evervec, "search", broken)
    for role, sees in (("reader", False), ("admin", True)):
        with served.http(served.key(role=role)) as http:
            answer = http.post("/v1/search", json={"query": "tea"})
        assert answer.status_code == 503
        assert (str(error) in answer.text) is sees
        assert (shown in answer.text) is not sees


@pytest.mark.parametrize("condition", ["error", "worker"])
@pytest.mark.parametrize("action", ["find", "retry", "cancel"])
def test_a_filter_does_not_tell_what_is_hidden(
    ev: Evervec, serve: Serve, condition: str, action: str
) -> None:
    served = serve(ev)
    for role, status in (("writer", 403), ("admin", 200)):
        with served.http(served.key(role=role)) as http:
            answered = http.post(f"/v1/jobs/{action}", json={condition: "10.0.0.7"})
            assert answered.status_code == status, answered.text
