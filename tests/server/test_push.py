"""Who may start a dispatch and deliver a job, and what a delivery is answered."""

import time
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from qstash import Receiver

import evervec
from evervec import Evervec
from evervec.errors import ProviderUnavailable
from evervec.model.jobs import Job, Status
from support.qstash import CURRENT_KEY, NEXT_KEY, sign
from support.service import Serve, Served
from support.world import World, claim_one, job_of

BODY = b'{"job_id": 1, "token": "none"}'
JSON = {"Content-Type": "application/json"}
SECRET = "the worker's secret"


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QSTASH_CURRENT_SIGNING_KEY", CURRENT_KEY)
    monkeypatch.setenv("QSTASH_NEXT_SIGNING_KEY", NEXT_KEY)


@pytest.fixture
def pushed(ev: Evervec, serve: Serve) -> Served:
    """A service with no worker."""
    return serve(ev)


def deliver(served: Served, body: bytes = BODY, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return served.http().post("/internal/worker", content=body, headers={**JSON, **named})


def message(job: Job) -> bytes:
    return b'{"job_id": %d, "token": "%s"}' % (job.job_id, str(job.token).encode())


def signatures(url: str) -> dict[str, str]:
    now, good = int(time.time()), sign(url, BODY)
    none = "eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0." + good.split(".")[1] + "."
    return {
        "good": good,
        "by the next key": sign(url, BODY, NEXT_KEY),
        "by another key": sign(url, BODY, "x" * 40),
        "expired": sign(url, BODY, exp=now - 10),
        "not good yet": sign(url, BODY, nbf=now + 60),
        "for another address": sign("https://elsewhere.example/internal/worker", BODY),
        "for another body": sign(url, b"{}"),
        "by another issuer": sign(url, BODY, iss="Nobody"),
        "without a body": sign(url, BODY, body=None),
        "without an end": sign(url, BODY, exp=None),
        "a body that is no text": sign(url, BODY, body=7),
        "unsigned": none,
        "truncated": good[:-10],
        "two parts": good.rpartition(".")[0],
        "no JWT": "forged",
        "empty": "",
        "deep": "W1" * 10_000 + ".e30.x",
        "not ASCII": "\u00e9\u00e8.\u00e9.\u00e9",
    }


def judged(signature: str, url: str) -> bool:
    """What the official SDK says."""
    try:
        Receiver(CURRENT_KEY, NEXT_KEY).verify(signature=signature, body=BODY.decode(), url=url)
    except Exception:
        return False
    return True


def test_signatures_are_judged_as_the_official_sdk_judges_them(pushed: Served, keys: None) -> None:
    url = f"{pushed.url}/internal/worker"
    client = pushed.http()
    verdicts = {}
    for name, signature in signatures(url).items():
        headers: Any = {**JSON, "Upstash-Signature": signature.encode("latin-1")}
        status = client.post("/internal/worker", content=BODY, headers=headers).status_code
        assert status in (200, 401), name
        verdicts[name] = status == 200
        if name != "without an end":  # the SDK lets those in; nobody should come for ever
            assert verdicts[name] == judged(signature, url), name
    assert [name for name, good in verdicts.items() if good] == ["good", "by the next key"]


def test_a_signature_names_the_public_address(serve: Serve, keys: None) -> None:
    address = "https://app.example.com"
    good = sign(f"{address}/internal/worker", BODY)
    with evervec.open("memory:", embedder="hashing", public_url=f"{address}/") as ev:
        served = serve(ev)
        assert deliver(served, Upstash_Signature=good).status_code == 200
        local = sign(f"{served.url}/internal/worker", BODY)
        assert deliver(served, Upstash_Signature=local).status_code == 401
        served.close()


def test_a_service_that_does_not_know_its_address_takes_no_signature(
    pushed: Served, keys: None
) -> None:
    good = sign("http://app.example.com/internal/worker", BODY)
    refused = deliver(pushed, Upstash_Signature=good, Host="app.example.com")
    assert refused.status_code == 401
    assert "EVERVEC_PUBLIC_URL" in refused.json()["detail"]


def test_without_a_signature_the_worker_secret_opens(
    pushed: Served, keys: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKER_SECRET", SECRET)
    assert deliver(pushed, x_worker_secret=SECRET).status_code == 200
    assert deliver(pushed, x_worker_secret=SECRET + "!").status_code == 401
    assert deliver(pushed, x_worker_secret="").status_code == 401
    assert deliver(pushed).status_code == 401
    # a forged signature is not made good by anything else
    forged = deliver(pushed, Upstash_Signature="forged", x_worker_secret=SECRET)
    assert forged.status_code == 401


def test_with_nothing_set_only_this_machine_may_deliver(pushed: Served) -> None:
    assert deliver(pushed).status_code == 200
    assert deliver(pushed, Host="evil.example").status_code == 401
    assert deliver(pushed, X_Forwarded_For="203.0.113.7").status_code == 401
    assert deliver(pushed, Origin="https://evil.example").status_code == 401
    assert deliver(pushed, Upstash_Signature="anything").status_code == 401


def test_one_key_of_the_two_is_enough_to_close_the_door(
    pushed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QSTASH_NEXT_SIGNING_KEY", NEXT_KEY)
    assert deliver(pushed).status_code == 401
    assert deliver(pushed, x_worker_secret="").status_code == 401


def test_the_schedulers_secret_comes_as_bearer_or_in_a_header_of_its_own(
    pushed: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pushed.http()
    assert client.post("/internal/dispatch").json() == {"claimed": 0, "published": 0, "released": 0}
    monkeypatch.setenv("CRON_SECRET", "tick")
    for headers in ({"Authorization": "Bearer tick"}, {"x-cron-secret": "tick"}):
        assert client.post("/internal/dispatch", headers=headers).is_success
        # what changes something is never done by a link
        assert client.get("/internal/dispatch", headers=headers).status_code == 405
    wrong: list[dict[str, str]] = [{}, {"Authorization": "Bearer tock"}, {"x-cron-secret": ""}]
    for headers in wrong:
        refused = client.post("/internal/dispatch", headers=headers)
        assert refused.status_code == 401
        assert "tick" not in refused.text
    assert (
        client.post("/internal/dispatch?limit=0", headers={"x-cron-secret": "tick"}).status_code
        == 422
    )


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"", 400), (b"[]", 422), (b"{", 400), (b'{"job_id": 1}', 422), (b"\xff", 400),
     (b'{"job_id": -1, "token": "x"}', 422), (b'{"job_id": 1, "token": 7}', 422)],
)  # fmt: skip
def test_a_malformed_delivery_is_the_senders_mistake(
    pushed: Served, body: bytes, status: int
) -> None:
    assert deliver(pushed, body).status_code == status


@pytest.fixture
def away(memory: World, serve: Serve) -> tuple[World, Served]:
    """A service whose provider does not answer."""
    memory.ev.add("note", "alpha", id="1")

    def outage(_: object) -> None:
        raise ProviderUnavailable("down for the test")

    memory.embedder.before = outage
    return memory, serve(memory.ev)


def test_an_outage_is_503_and_costs_no_attempt(away: tuple[World, Served]) -> None:
    world, served = away
    first = claim_one(world.ev)
    assert deliver(served, message(first)).status_code == 503
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    # while it lasts nothing goes out
    assert served.http().post("/internal/dispatch").json()["claimed"] == 0
    world.embedder.before = None
    world.clock.move(600)
    assert served.http().post("/internal/dispatch").json()["published"] == 1
    assert job_of(world.ev, "1").status is Status.DONE
    # the message of before comes again
    assert deliver(served, message(first)).json() == {"status": None, "error": None}


def test_a_records_own_failure_is_200_with_its_status(memory: World, serve: Serve) -> None:
    memory.ev.add("note", "alpha", id="1", max_attempts=2)

    def refuse(texts: Sequence[str]) -> None:
        if "alpha" in texts:
            raise RuntimeError("it cannot be embedded")

    memory.embedder.before = refuse
    served = serve(memory.ev)
    answers = []
    for _ in range(2):
        answers.append(deliver(served, message(claim_one(memory.ev))))
        memory.clock.move(600)
    assert [answer.status_code for answer in answers] == [200, 200]
    assert [answer.json()["status"] for answer in answers] == ["pending", "failed"]
    assert "it cannot be embedded" in answers[0].json()["error"]
