"""The client has the library's methods, values and errors."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta

import pytest

import evervec
from evervec import (
    AccessDenied,
    Client,
    Evervec,
    InvalidArgument,
    InvalidRecord,
    InvalidTransition,
    JobFailed,
    RateLimited,
    StoreError,
    WaitTimeout,
)
from support.flaky import Flaky, failing
from support.service import Serve, Served
from support.world import fail_for_good


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    with Client(served.url, served.key()) as made:
        yield made


@pytest.fixture
def flaky() -> Iterator[type[Flaky]]:
    with failing() as service:
        yield service


@pytest.fixture
def idle(ev: Evervec, serve: Serve) -> Iterator[Client]:
    """Of a service in which nobody works."""
    served = serve(ev)
    with Client(served.url, served.key()) as made:
        yield made


def test_a_record_goes_the_whole_way_as_with_the_library(client: Client, ev: Evervec) -> None:
    ticket = client.add("note", "Tea is grown on hills", id="tea", metadata={"topic": "plants"})
    assert client.wait(ticket).status == "done"
    hits = client.search("where is tea grown", filter={"topic": "plants"}, after=ticket)
    (found,), (same,) = hits, ev.search("where is tea grown", filter={"topic": "plants"})
    assert replace(found, relevance=same.relevance) == same  # it is older by now
    assert (hits.via, hits.version) == ("hybrid", "hashing-256")
    assert client.get("note", "tea") == ev.get("note", "tea")
    assert client.records() == ev.records()
    assert client.versions() == ev.versions()
    assert client.verify() == ev.verify()
    assert client.verify(quick=True) == ev.verify(quick=True) != ev.verify()
    (tried,), (same_try,) = client.queue.history("note", "tea"), ev.queue.history("note", "tea")
    assert replace(tried, worker="") == replace(same_try, worker="")  # it names no host
    assert client.queue.stats().done == 1
    assert client.queue.status("note", "tea") == client.queue.get(ticket.job_id)
    assert client.delete("note", "tea", wait=20).accepted
    assert client.get("note", "tea") is None
    assert not client.delete("note", "tea").accepted
    assert client.queue.get(99999) is None
    assert client.queue.history("note", "nothing") == []


def test_many_records_are_streamed_lazily(client: Client, ev: Evervec) -> None:
    asked: list[int] = []

    def records() -> Iterator[dict[str, object]]:
        for n in range(2500):
            asked.append(n)
            yield {"id": n, "text": f"text {n}"}

    tickets = client.add_many("note", records())
    first = next(tickets)
    assert (first.id, len(asked)) == ("0", 1000)
    assert [ticket.id for ticket in tickets] == [str(n) for n in range(1, 2500)]
    assert len(client.records(limit=5000)) == 2500
    assert len(client.queue.jobs(limit=2000)) == 2000


def test_a_bad_record_of_many_is_named_by_its_place(client: Client, ev: Evervec) -> None:
    records = [{"id": n, "text": "" if n == 1500 else f"text {n}"} for n in range(2000)]
    tickets = client.add_many("note", records)
    assert len(list(itertools.islice(tickets, 1500))) == 1500
    with pytest.raises(InvalidRecord, match=r"position 1500: text: is empty") as raised:
        next(tickets)
    assert raised.value.position == 1500
    assert len(ev.records(limit=5000)) == 1500


def test_errors_are_the_librarys_own(idle: Client, ev: Evervec) -> None:
    with pytest.raises(InvalidRecord, match="text: is empty"):
        idle.add("note", "")
    with pytest.raises(InvalidArgument, match="kind"):
        idle.add(" ", "text")
    with pytest.raises(InvalidRecord, match="JSON"):
        idle.add("note", "text", metadata={"a": float("nan")})
    ticket = idle.add("note", "text", id="1")
    with pytest.raises(WaitTimeout):
        idle.add("note", "text two", id="1", wait=0)
    with pytest.raises(WaitTimeout):
        idle.wait(ticket, 0)
    with pytest.raises(InvalidTransition):
        idle.queue.retry(ticket.job_id)
    fail_for_good(ev, "1")
    with pytest.raises(JobFailed, match="could not be embedded"):
        idle.wait(ticket, 60)
    with pytest.raises(AccessDenied):
        idle.migrate("hashing:64")
    with pytest.raises(InvalidArgument, match="limit"):
        idle.records(limit=0)


def test_the_queue_can_be_cared_for(idle: Client, ev: Evervec) -> None:
    job = idle.add("note", "text", id="1").job_id
    idle.queue.set_priority(job, 7)
    assert ev.queue.jobs()[0].priority == 7
    fail_for_good(ev, "1")
    assert [failed.job_id for failed in idle.queue.failed()] == [job]
    assert idle.queue.retry_failed() == 1
    fail_for_good(ev, "1")
    idle.queue.retry(job)
    assert idle.queue.recover_stuck() == 0
    idle.queue.pause()
    assert idle.queue.stats().paused_tenants == [ev.tenant]
    idle.queue.resume()
    assert not ev.store.jobs.paused(ev.tenant)
    idle.queue.cancel(job)
    assert idle.queue.get(job) is None
    assert idle.queue.purge_done(timedelta(0)) == idle.queue.purge_dead(timedelta(0)) == 0


def test_records_are_counted_and_deleted_by_a_filter(idle: Client, ev: Evervec) -> None:
    for day in (date(2024, 3, 1), date(2024, 4, 1)):
        idle.add("note", "x", id=str(day), metadata={"day": day.isoformat()})
    spring = {"day": {"lt": date(2024, 4, 1)}}
    assert (idle.count(), idle.count("note", spring), idle.count("none")) == (2, 1, 0)
    assert (idle.delete_where(spring, dry_run=True), ev.count()) == (1, 2)
    assert (idle.delete_where(spring, "note"), ev.count()) == (1, 1)
    with pytest.raises(InvalidArgument, match="would delete every record"):
        idle.delete_where({})


def test_a_change_over_a_version_that_is_gone_is_refused(idle: Client) -> None:
    first = idle.add("note", "one", id="1")
    second = idle.add("note", "two", id="1", if_seq=first.seq)
    with pytest.raises(InvalidArgument, match="If-Match"):
        idle.add("note", "three", id="1", if_seq=first.seq)
    with pytest.raises(InvalidArgument, match="If-Match"):
        idle.delete("note", "1", if_seq=first.seq)
    assert idle.delete("note", "1", if_seq=second.seq).accepted


def test_a_wrong_key_and_a_missing_service_are_told_plainly(served: Served) -> None:
    served.key()
    with Client(served.url, "ev_nonsense") as client, pytest.raises(AccessDenied, match="key"):
        client.records()
    assert "secret" not in repr(Client(served.url, "secret"))
    with (
        Client("http://127.0.0.1:9", retries=0) as nowhere,
        pytest.raises(StoreError, match="is unreachable"),
    ):
        nowhere.records()
    for bad in ("http://[", "ftp://x", "127.0.0.1"):
        with pytest.raises((InvalidArgument, StoreError)), Client(bad, retries=0) as client:
            client.records()


def test_a_platform_admin_names_the_tenant(served: Served, ev: Evervec) -> None:
    with Client(served.url, served.key(role="admin"), tenant="acme") as client:
        client.add("note", "text", id="1")
    assert ev.of("acme").get("note", "1") is not None
    assert ev.get("note", "1") is None


def test_what_may_pass_is_tried_again_under_one_name(flaky: type[Flaky]) -> None:
    done = b'{"retried": 3}'
    flaky.answers += [(0, b""), (503, b"busy"), (429, b"{}"), (200, done)]
    with Client(flaky.url) as client:
        assert client.queue.retry_failed() == 3
    assert len(set(flaky.keys)) == 1
    assert (len(flaky.keys), None in flaky.keys) == (4, False)


def test_patience_ends(flaky: type[Flaky]) -> None:
    flaky.answers += [(429, b'{"detail": "slow down"}')]
    with Client(flaky.url, retries=1) as client, pytest.raises(RateLimited, match="slow"):
        client.queue.retry_failed()
    flaky.answers[:] = [(502, b"<html>")]
    with Client(flaky.url, retries=0) as client, pytest.raises(StoreError, match="502"):
        client.queue.retry_failed()
    assert evervec.Client is Client
