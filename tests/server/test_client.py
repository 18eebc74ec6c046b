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
from evervec.server.audit import Audit
from evervec.server.keys import Keys
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


# ---- keys, tokens and the audit log


@pytest.fixture
def admin(ev: Evervec, serve: Serve) -> Iterator[Client]:
    served = serve(ev)
    with Client(served.url, served.key(role="admin", agent="root")) as made:
        yield made


def test_an_admin_manages_keys_as_with_the_library(admin: Client, ev: Evervec) -> None:
    made = admin.keys.create("acme", "crawler", "reader", expires_in=timedelta(hours=1))
    assert made.key.startswith(made.info.prefix)
    assert (made.info.agent, made.info.role, made.info.tenant) == ("crawler", "reader", "acme")
    assert made.info.expires_at is not None
    assert made.info.expires_at - made.info.created_at == timedelta(hours=1)
    newer = admin.keys.rotate(made.info.id, overlap=0)
    assert admin.keys.list("acme") == Keys(ev.store).page("acme", None, 10)
    assert [key.id for key in admin.keys.list("acme")] == [newer.info.id, made.info.id]
    with Client(str(admin._url), made.key) as old, pytest.raises(AccessDenied):
        old.count()
    with Client(str(admin._url), newer.key) as new:
        assert new.count() == 0
        admin.keys.revoke(newer.info.prefix)
        with pytest.raises(AccessDenied):
            new.count()
    with pytest.raises(InvalidArgument, match="can be revoked"):
        admin.keys.revoke(newer.info.id)
    with pytest.raises(InvalidArgument, match="can be rotated"):
        admin.keys.rotate(newer.info.id)
    with pytest.raises(InvalidArgument, match="role"):
        admin.keys.create("acme", role="owner")
    assert [entry.action for entry in admin.audit.list()] == [
        "key.revoke", "key.rotate", "key.create"
    ]  # fmt: skip
    (entry,) = admin.audit.list(action="key.rotate")
    assert (entry.agent, entry.tenant, entry.outcome) == ("root", "*", "done")
    assert admin.audit.list(key_id="000000000000") == admin.audit.list("acme") == []


def test_lists_of_keys_and_entries_are_read_page_by_page(
    admin: Client, ev: Evervec, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Keys(ev.store)
    made = [keys.create("acme").info.id for _ in range(25)]
    for n in range(25):
        Audit(ev.store).note("someone", "acme", "job.retry", str(n))
    monkeypatch.setattr("evervec.client.connection.LARGEST_PAGE", 10)
    assert sorted(key.id for key in admin.keys.list("acme", limit=1000)) == sorted(made)
    assert len(admin.keys.list("acme", limit=12)) == 12
    assert len(admin.keys.list(limit=1000)) == 26
    assert [entry.target for entry in admin.audit.list("acme", limit=21)] == [
        str(n) for n in range(24, 3, -1)
    ]
    with pytest.raises(InvalidArgument, match="limit"):
        admin.keys.list(limit=0)


def test_a_client_of_one_tenant_lists_its_keys(ev: Evervec, serve: Serve) -> None:
    served = serve(ev)
    with Client(served.url, served.key(role="admin"), tenant="acme") as client:
        made = client.keys.create("acme", role="reader")
        client.keys.create("other", role="reader")
        assert client.keys.list() == [made.info]
        assert len(client.keys.list("other")) == 1
        client.keys.revoke(made.info.id)
        token = client.tokens.create("writer")
        assert token.tenant == "acme"
        client.tokens.revoke(token.id)


def test_a_token_has_a_part_of_the_permissions_of_its_key(client: Client, ev: Evervec) -> None:
    client.add("note", "seen", id="1")
    client.add("task", "hidden", id="1")
    made = client.tokens.create(kinds=["note"], expires_in=timedelta(minutes=5))
    assert (made.role, made.kinds, made.agent) == ("reader", ("note",), "a")
    assert made.token not in repr(made)
    with Client(str(client._url), made.token) as limited:
        assert limited.get("note", "1") is not None
        with pytest.raises(AccessDenied):
            limited.get("task", "1")
        with pytest.raises(AccessDenied, match="kinds"):
            limited.tokens.create()
    for refused in (client.keys.list, client.audit.list, lambda: client.tokens.revoke(made.id)):
        with pytest.raises(AccessDenied):
            refused()
    with pytest.raises(AccessDenied, match="cannot create a token with the role admin"):
        client.tokens.create("admin")


def test_a_key_is_asked_for_once(flaky: type[Flaky]) -> None:
    """A second one would be known to nobody, and stay valid."""
    flaky.answers[:] = [(0, b""), (200, b"{}")]
    with Client(flaky.url) as client:
        with pytest.raises(StoreError, match="unreachable"):
            client.keys.create("acme")
        assert len(flaky.keys) == 1
        flaky.answers[:] = [(503, b"busy"), (200, b"{}")]
        with pytest.raises(StoreError):
            client.tokens.create()
        flaky.answers[:] = [(429, b"{}"), (409, b'{"detail": "no"}')]
        with pytest.raises(InvalidArgument, match="no"):
            client.keys.rotate("0" * 12)
        assert len(flaky.keys) == 4
