"""A forged, expired or truncated signature, and a good delivery repeated or late."""

import threading
import time

import httpx
import pytest

from evervec import Evervec, Job
from evervec.model.jobs import Status
from support.places import Place, contents, kind_of
from support.qstash import CURRENT_KEY, Message, sign
from support.service import serving
from support.world import job_of


@pytest.fixture(autouse=True)
def signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QSTASH_CURRENT_SIGNING_KEY", CURRENT_KEY)


def message(url: str, job: Job) -> Message:
    body = b'{"job_id": %d, "token": "%s"}' % (job.job_id, str(job.token).encode())
    return Message(f"{url}/internal/worker", body, "")


def seen(path: Place, ev: Evervec) -> object:
    """All rows; of a DuckDB file, which nobody else can open, the jobs and what was tried."""
    if kind_of(path) == "duckdb":
        return ev.queue.jobs(), ev.queue.history("note", "1")
    return contents(path)


def test_a_bad_signature_is_401_and_nothing_is_run(ev: Evervec) -> None:
    ev.add("note", "alpha", id="1")
    (job,) = ev.queue.claim(1)
    with serving() as serve, httpx.Client(verify=False) as client:
        sent = message(serve(ev).url, job)
        good = sign(sent.url, sent.body)
        bad = (
            sign(sent.url, sent.body, "another key that is as long as it takes"),
            sign(sent.url, sent.body, exp=int(time.time()) - 1),
            good[: len(good) // 2],
        )
        for signature in bad:
            headers = {"Upstash-Signature": signature}
            assert client.post(sent.url, content=sent.body, headers=headers).status_code == 401
    now = job_of(ev, "1")
    assert (now.status, now.token, now.lease_expires_at) == (
        Status.PROCESSING, job.token, job.lease_expires_at,
    )  # fmt: skip


def test_a_good_delivery_repeated_or_late_changes_nothing(path: Place, ev: Evervec) -> None:
    ev.add("note", "alpha", id="1")
    (job,) = ev.queue.claim(1)
    with serving() as serve:
        sent = message(serve(ev).url, job)
        assert sent.deliver().json()["status"] == "done"
        before = seen(path, ev)
        for _ in range(3):
            repeated = sent.deliver()
            assert (repeated.status_code, repeated.json()["status"]) == (200, None)
        assert seen(path, ev) == before

        ev.add("note", "beta", id="1")  # and late: the job is another's by now
        (mine,) = ev.queue.claim(1)
        assert sent.deliver().json()["status"] is None
        assert job_of(ev, "1").token == mine.token
        ev.queue.release(mine)
        assert ev.process_all().succeeded == 1
    assert ev.verify().clean


def test_a_delivery_that_comes_twice_at_once_is_done_once(ev: Evervec) -> None:
    ev.add("note", "alpha", id="1")
    (job,) = ev.queue.claim(1)
    ends, begun = [], threading.Barrier(4)

    def deliver() -> None:
        begun.wait()
        ends.append(ev.dispatcher.deliver(job.job_id, str(job.token)).status)

    threads = [threading.Thread(target=deliver) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(str, ends)) == ["None", "None", "None", "done"]
    assert len(ev.queue.history("note", "1")) == 1
