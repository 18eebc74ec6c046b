"""The library, the library for asyncio, and the clients of a service do the same."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import BaseModel, Field, computed_field

from evervec import (
    Evervec,
    EvervecError,
    InvalidArgument,
    InvalidRecord,
    InvalidTransition,
    JobFailed,
    JobFilter,
    Kind,
    QuotaExceeded,
    Status,
    Ticket,
    WaitTimeout,
)
from evervec.errors import StoreClosed
from evervec.model.usage import Limits
from support.ways import WAYS
from support.world import KIND, World, assert_in_step, fail_for_good, work


class Tea(BaseModel):
    name: str
    picked_on: date = Field(alias="pickedOn")
    price: Decimal

    @computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return self.name.upper()


@pytest.fixture
def store(file_world: World) -> Evervec:
    """The store itself."""
    return file_world.ev


@pytest.fixture(params=WAYS)
def ev(request: pytest.FixtureRequest, store: Evervec) -> Iterator[Evervec]:
    """The store as one of the ways shows it."""
    with WAYS[request.param](store) as way:
        yield way


def test_a_record_is_added_embedded_found_and_deleted(ev: Evervec, store: Evervec) -> None:
    ticket = ev.add(
        KIND, "Tea is grown on hills", id="tea", title="Tea", metadata={"topic": "plants"},
        weight=0.5, priority=3,
    )  # fmt: skip
    assert isinstance(ticket, Ticket)
    assert (ticket.kind, ticket.id, ticket.accepted, ticket.is_new) == (KIND, "tea", True, True)
    record = ev.get(KIND, "tea")
    assert record is not None
    assert record == store.get(KIND, "tea")
    assert (record.title, record.text, record.metadata, record.weight, record.embedded) == (
        "Tea", "Tea is grown on hills", {"topic": "plants"}, 0.5, False,
    )  # fmt: skip
    work(store)
    job = ev.wait(ticket, 10)
    assert (job.status, job.record_id, job.priority) == (Status.DONE, "tea", 3)
    hits = ev.search("where is tea grown", k=3, filter={"topic": "plants"}, after=ticket)
    assert (hits.via, hits.version) == ("hybrid", "hashing-64")
    assert list(hits) == list(store.search("where is tea grown", filter={"topic": "plants"}))
    assert ev.search("tea", mode="text").via == "text"
    assert ev.search("tea", filter={"topic": "other"}) == []
    deleted = ev.delete(KIND, "tea")
    assert deleted.accepted
    assert deleted.seq > ticket.seq
    assert ev.get(KIND, "tea") is None
    assert ev.search("tea") == []
    assert not ev.delete(KIND, "tea").accepted
    work(store)
    assert_in_step(store, {})


def test_the_same_record_again_changes_nothing(ev: Evervec, store: Evervec) -> None:
    first = ev.add(KIND, "text", id="1")
    work(store)
    again = ev.add(KIND, "text", id="1")
    assert (again.job_id, again.is_new) == (first.job_id, False)
    assert ev.queue.stats().pending == 0


def test_a_version_that_is_not_newer_is_not_accepted(ev: Evervec) -> None:
    assert ev.add(KIND, "new", id="1", version=2).accepted
    assert not ev.add(KIND, "old", id="1", version=1).accepted
    refused = ev.add(KIND, "old", id="1", version=1, wait=60)  # there is nothing to wait for
    assert (refused.accepted, refused.enqueued) == (False, False)
    found = ev.get(KIND, "1")
    assert found is not None
    assert found.text == "new"


def test_a_change_over_a_seq_that_is_gone_is_not_accepted(ev: Evervec) -> None:
    first = ev.add(KIND, "one", id="1")
    second = ev.add(KIND, "two", id="1", if_seq=first.seq)
    assert second.accepted
    for refused in (
        ev.add(KIND, "three", id="1", if_seq=first.seq, wait=60),  # there is nothing to wait for
        ev.delete(KIND, "1", if_seq=first.seq, wait=60),
        ev.add(KIND, "new", id="2", if_seq=1),
        ev.delete(KIND, "2", if_seq=1),
    ):
        assert (refused.accepted, refused.enqueued) == (False, False)
    assert [(record.id, record.text) for record in ev.records()] == [("1", "two")]
    assert ev.delete(KIND, "1", if_seq=second.seq).accepted


def test_an_add_can_wait_for_its_vectors(ev: Evervec, store: Evervec) -> None:
    with store.worker():
        assert ev.add(KIND, "text", id="1", wait=30).accepted
        assert ev.delete(KIND, "1", wait=30).accepted
    assert_in_step(store, {})


def test_a_boxed_record_is_hidden_until_it_is_embedded(ev: Evervec, store: Evervec) -> None:
    ev.add(KIND, "text", id="1", boxed=True)
    assert ev.get(KIND, "1") is None
    work(store)
    assert ev.get(KIND, "1") is not None


def test_times_are_kept(ev: Evervec) -> None:
    created, updated = datetime(2024, 3, 1, tzinfo=UTC), datetime(2024, 5, 1, 12, tzinfo=UTC)
    ev.add(KIND, "text", id="1", created_at=created, updated_at=updated)
    found = ev.get(KIND, "1")
    assert found is not None
    assert (found.created_at, found.updated_at) == (created, updated)


def test_ids_are_made_and_any_name_is_kept(ev: Evervec) -> None:
    made = ev.add(KIND, "text").id
    assert len(made) == 36
    for id in ("a/b", "ä ö", "%2F", "?x=1#y", "..", 7):
        ticket = ev.add("kind/of it", f"text {id}", id=id)
        found = ev.get("kind/of it", id)
        assert found is not None
        assert (ticket.id, found.id, found.text) == (str(id), str(id), f"text {id}")
        assert len(ev.queue.history("kind/of it", id)) == 0
        assert ev.delete("kind/of it", id).accepted


def test_many_records_are_saved_in_order(ev: Evervec, store: Evervec) -> None:
    read: list[int] = []

    def records() -> Iterator[dict[str, Any]]:
        for n in range(2100):
            read.append(n)
            yield {"id": n, "text": f"text {n}", "metadata": {"n": n}}

    tickets = ev.add_many(KIND, records())
    assert next(tickets).id == "0"
    assert len(read) <= 1000
    assert [ticket.id for ticket in tickets] == [str(n) for n in range(1, 2100)]
    assert store.count() == 2100


def test_an_invalid_record_of_many_is_named_after_those_before_it(ev: Evervec) -> None:
    records = [{"id": n, "text": "" if n == 5 else f"text {n}"} for n in range(9)]
    tickets = ev.add_many(KIND, records)
    assert [ticket.id for ticket in islice(tickets, 5)] == list("01234")
    with pytest.raises(InvalidRecord, match=r"record at position 5: text: is empty") as raised:
        next(tickets)
    assert raised.value.position == 5
    assert ev.count() == 5


def test_records_are_listed_counted_and_deleted_by_filters(ev: Evervec, store: Evervec) -> None:
    for kind in ("a", "b"):
        for n in range(6):
            ev.add(kind, f"text {n}", id=n, metadata={"n": n, "even": n % 2 == 0})
    assert [(r.kind, r.id) for r in ev.records(limit=7)] == [
        *(("a", str(n)) for n in range(6)), ("b", "0"),
    ]  # fmt: skip
    assert ev.records() == store.records()
    assert [r.id for r in ev.records("b", filter={"n": {"gte": 3}, "even": True})] == ["4"]
    assert ev.records(embedded=True) == []
    work(store)
    assert len(ev.records(embedded=True)) == 12
    assert (ev.count(), ev.count("a"), ev.count("a", {"even": True})) == (12, 6, 3)
    assert (ev.delete_where({"even": True}, "a", dry_run=True), ev.count()) == (3, 12)
    assert (ev.delete_where({"even": True}, "a"), ev.count("a")) == (3, 3)
    assert (ev.delete_where({"n": {"lt": 100}}), ev.count()) == (9, 0)


def test_wrong_input_is_refused_with_the_same_errors(ev: Evervec) -> None:
    with pytest.raises(InvalidRecord, match="text: is empty"):
        ev.add(KIND, "")
    with pytest.raises((InvalidRecord, InvalidArgument), match="weight"):
        ev.add(KIND, "text", weight=3)
    with pytest.raises(InvalidArgument, match="kind"):
        ev.add(" ", "text")
    with pytest.raises(InvalidArgument, match="k"):
        ev.search("text", k=0)
    with pytest.raises(InvalidArgument, match="mode"):
        ev.search("text", mode="other")
    with pytest.raises(InvalidArgument, match="query"):
        ev.search("")
    with pytest.raises(InvalidArgument, match="limit"):
        ev.records(limit=0)
    with pytest.raises(InvalidArgument, match="would delete every record"):
        ev.delete_where({})
    with pytest.raises(InvalidArgument, match="nonsense"):
        ev.count(filter={"a": {"nonsense": 1}})
    with pytest.raises(InvalidArgument, match="status"):
        ev.queue.jobs(status="other")
    assert ev.count() == 0


def test_a_wait_that_is_too_long_says_what_happened(ev: Evervec, store: Evervec) -> None:
    ticket = ev.add(KIND, "text", id="1")
    with pytest.raises(WaitTimeout, match="saved and waiting"):
        ev.wait(ticket, 0)
    with pytest.raises(WaitTimeout):
        ev.search("text", after=ticket, wait=0)
    with pytest.raises(WaitTimeout):
        ev.add(KIND, "other", id="1", wait=0)
    fail_for_good(store, "1")
    with pytest.raises(JobFailed, match="it is bad"):
        ev.wait(ticket, 10)
    with pytest.raises(JobFailed, match="it is bad"):
        ev.search("text", after=ticket, wait=10)


def test_a_quota_refuses_what_does_not_fit(ev: Evervec, store: Evervec) -> None:
    store.set_limits(Limits(records=1))
    ev.add(KIND, "text", id="1")
    with pytest.raises(QuotaExceeded):
        ev.add(KIND, "text", id="2")
    assert ev.usage().records == 1


def test_the_queue_is_read_and_cared_for(ev: Evervec, store: Evervec, file_world: World) -> None:
    job_id = ev.add(KIND, "text", id="1").job_id
    ev.add(KIND, "text", id="2", priority=-5)
    ev.queue.set_priority(job_id, 7)
    job = ev.queue.get(job_id)
    assert job is not None
    assert (job.priority, job.status, job.attempts) == (7, Status.PENDING, 0)
    assert ev.queue.status(KIND, "1") == job
    assert ev.queue.jobs(status="pending")[0] == job
    fail_for_good(store, "1")
    assert [failed.job_id for failed in ev.queue.failed()] == [job_id]
    (attempt,) = ev.queue.history(KIND, "1")
    assert attempt.error == "it is bad"
    assert ev.queue.retry_failed() == 1
    fail_for_good(store, "1")
    ev.queue.retry(job_id)
    with pytest.raises(InvalidTransition):
        ev.queue.retry(job_id)
    assert ev.queue.recover_stuck() == 0
    ev.queue.cancel(job_id)
    assert ev.queue.get(job_id) is None
    assert ev.queue.status(KIND, "1") is None
    assert ev.queue.history(KIND, "nothing") == []
    stats = ev.queue.stats()
    assert (stats.pending, stats.failed, stats.unique_records) == (1, 0, 1)
    work(store)
    assert ev.queue.purge_done(timedelta(days=1)) == 0
    file_world.clock.move(10)
    assert ev.queue.purge_done(timedelta(seconds=5)) == 1
    assert ev.queue.purge_dead(timedelta(0)) == 0
    ev.queue.pause()
    ev.add(KIND, "text", id="3")
    assert store.queue.claim(5) == []
    ev.queue.resume()
    assert len(store.queue.claim(5)) == 1


def test_an_unknown_job_cannot_be_changed(ev: Evervec) -> None:
    assert ev.queue.get(99) is None
    for change in (ev.queue.retry, ev.queue.cancel, lambda job: ev.queue.set_priority(job, 1)):
        with pytest.raises(EvervecError):
            change(99)


def test_a_model_is_changed_and_changed_back(ev: Evervec, store: Evervec) -> None:
    for n in range(5):
        ev.add(KIND, f"text {n}", id=n)
    work(store)
    assert [(v.name, v.kind, v.state) for v in ev.versions()] == [("hashing-64", KIND, "serving")]
    assert ev.versions() == store.versions()
    migration = ev.migrate("hashing:32")
    assert migration.status().state == "building"
    with pytest.raises(WaitTimeout):
        migration.wait(0)
    store.process_all()
    assert migration.wait(30).complete
    migration.switch()
    assert ev.search("text", mode="semantic").version == "hashing-32"
    migration.rollback()
    assert ev.search("text", mode="semantic").version == "hashing-64"
    with pytest.raises(InvalidTransition, match="nothing to retire"):
        migration.retire()
    migration.cancel()


def test_the_index_is_compared_with_the_records_and_repaired(ev: Evervec, store: Evervec) -> None:
    for n in range(5):
        ev.add(KIND, f"text {n}", id=n)
    work(store)
    assert ev.verify().complete
    assert ev.verify() == store.verify()
    assert ev.verify(quick=True) == store.verify(quick=True)
    (version,) = [c.version for c in store.store.versions.collections()]
    store.index.remove(version, list(store.index.held(version, None, 0, None))[:1])
    assert ev.verify().missing == 1
    assert ev.verify(repair=True).repaired == 1
    work(store)
    assert ev.verify().complete


_SEARCHES: dict[str, Any] = {
    "explained": lambda ev: ev.search("tea 3 hills", 4, explain=True),
    "semantic": lambda ev: ev.search("tea 3", 3, mode="semantic", explain=True),
    "similar enough": lambda ev: ev.search("tea 3 hills", 12, min_similarity=0.2),
    "relevant enough": lambda ev: ev.search("tea 3 hills", 12, min_relevance=0.4),
    "a page": lambda ev: ev.search("tea", 4, offset=8),
    "groups": lambda ev: ev.search("tea", 2, group_by="even", groups=2),
    "diverse": lambda ev: ev.search("tea hills", 4, diversity=0.7),
    "a vector": lambda ev: ev.search(vector=[1.0] * 64, k=3),
    "an array": lambda ev: ev.search("tea", vector=np.ones(64), k=3),
    "some fields": lambda ev: ev.search("tea", 2, fields=["title"]),
    "a field": lambda ev: ev.search("tea", 2, fields="title"),
    "kinds": lambda ev: ev.search("tea", 20, kind=["note", "other"]),
    "not reranked": lambda ev: ev.search("tea", 2, rerank=False),
    "a version": lambda ev: ev.search("tea", 2, version="hashing-64"),
    "similar": lambda ev: ev.similar("note", 3, 4, filter={"n": {"gt": 1}}, explain=True),
    "few similar": lambda ev: ev.similar("note", "3", min_similarity=0.3),
    "a set": lambda ev: ev.search("tea", filter={"n": {1, 2}}),
    "sets": lambda ev: ev.search("tea", filter={"not": {"n": {"in": frozenset({1, 2})}}}),
    "a date": lambda ev: ev.search("tea", filter={"day": {"gte": date(2024, 3, 9)}}),
    "a set of records": lambda ev: ev.records("note", filter={"n": {1, 2}}),
    "records after": lambda ev: ev.records("note", limit=3, after=("note", "10")),
    "a count": lambda ev: ev.count("note", {"n": {1, 2}}),
    "to delete": lambda ev: ev.delete_where({"n": {1, 2}}, dry_run=True),
}
_TICKET = Ticket("note", "1", 1, 1)


def _deep() -> dict[str, Any]:
    filter: dict[str, Any] = {}
    for _ in range(5000):
        filter = {"not": filter}
    return filter


_REFUSED: dict[str, Any] = {
    "letters": lambda ev: ev.search(vector="abc"),
    "texts": lambda ev: ev.search(vector=["1.0"] * 64),
    "truths": lambda ev: ev.search(vector=[True] * 64),
    "no number": lambda ev: ev.search(vector=[float("nan")] * 64),
    "two rows": lambda ev: ev.search(vector=np.ones((2, 64))),
    "too few numbers": lambda ev: ev.search(vector=[1.0] * 3),
    "no query": lambda ev: ev.search(),
    "kinds in kinds": lambda ev: ev.search("tea", kind=[["note"]]),
    "a field in a field": lambda ev: ev.search("tea", fields=[["text"]]),
    "a filter of filters": lambda ev: ev.search("tea", filter=_deep()),
    "a numbered field": lambda ev: ev.search("tea", filter={1: 2}),
    "an endless wait": lambda ev: ev.add("note", "text", id="refused", wait=float("nan")),
    "a wait of the past": lambda ev: ev.wait(ev.delete("note", "absent"), -1),
    "a wait for hits": lambda ev: ev.search("tea", after=_TICKET, wait=float("inf")),
    "a seq of text": lambda ev: ev.add("note", "text", id="refused", if_seq="1"),
    "a seq below none": lambda ev: ev.delete("note", "1", if_seq=-1),
    "no ticket": lambda ev: ev.search("tea", after="x"),
    "an unknown field": lambda ev: ev.search("tea", fields=["id"]),
    "no kinds": lambda ev: ev.search("tea", kind=[]),
    "too deep": lambda ev: ev.search("tea", offset=5000),
    "a cosine of words": lambda ev: ev.search("tea", mode="text", min_similarity=0.1),
    "pages of groups": lambda ev: ev.search("tea", group_by="even", offset=3),
    "an unknown version": lambda ev: ev.search("tea", version="x"),
    "no reranker": lambda ev: ev.search("tea", rerank=True),
    "no similar": lambda ev: ev.similar("note", "3", 0),
    "too many similar": lambda ev: ev.similar("note", "3", 1001),
    "similar to none": lambda ev: ev.similar("note", "absent"),
    "after a kind": lambda ev: ev.records("note", after=("note",)),
    "after a text": lambda ev: ev.records("note", after="n2"),
    "all": lambda ev: ev.delete_where({"not": {"n": set()}}),
}


def _fill(store: Evervec) -> None:
    for n in range(12):
        store.add(
            "note", f"tea {n} is grown on {'hills' if n % 3 else 'fields'}", id=n, title=f"T{n}",
            metadata={"n": n, "even": n % 2 == 0, "day": f"2024-03-{n + 1:02d}"},
        )  # fmt: skip
    work(store)


def test_every_option_of_a_search_means_the_same(ev: Evervec, store: Evervec) -> None:
    _fill(store)
    for name, ask in _SEARCHES.items():
        mine, theirs = ask(ev), ask(store)
        assert mine == theirs, name
        assert mine, name
    mine, theirs = ev.vectors("note", [1, "2", "absent"]), store.vectors("note", [1, "2"])
    assert list(mine) == list(theirs) == ["1", "2"]
    for id, chunks in mine.items():
        for chunk, other in zip(chunks, theirs[id], strict=True):
            assert (chunk.start, chunk.end) == (0, other.end)
            assert chunk.vector.dtype == np.float32
            np.testing.assert_allclose(chunk.vector, other.vector, atol=1e-6)


def test_what_one_way_refuses_all_refuse(ev: Evervec, store: Evervec) -> None:
    _fill(store)
    for name, ask in _REFUSED.items():
        try:
            ask(ev)
        except InvalidArgument:
            continue
        pytest.fail(f"{name} was not refused")
    for value in (date(2024, 3, 1), {1, 2}, float("nan")):
        with pytest.raises(InvalidRecord):
            ev.add(KIND, "text", id="refused", metadata={"value": value})
    assert ev.get(KIND, "refused") is None


def test_what_was_closed_says_so(ev: Evervec) -> None:
    ev.close()
    for call in (ev.count, lambda: ev.search("tea"), lambda: ev.add(KIND, "text")):
        with pytest.raises(StoreClosed, match="closed"):
            call()


def test_a_data_frame_is_added_and_records_and_hits_become_tables(
    ev: Evervec, store: Evervec
) -> None:
    moment = datetime(2024, 3, 1, 12, 30, tzinfo=UTC)
    frame = pa.table(
        {
            "id": [1, 2],
            "text": ["Tea is grown on hills", "Coffee is roasted"],
            "title": ["Tea", None],
            "metadata": [{"topic": "plants", "year": None}, None],
            "created_at": [moment, None],
        }
    )
    assert [ticket.id for ticket in ev.add_many(KIND, frame)] == ["1", "2"]
    found = ev.records()
    assert found == list(store.records())
    assert (found[0].title, found[0].metadata, found[0].created_at) == (
        "Tea", {"topic": "plants"}, moment,
    )  # fmt: skip
    assert (found[1].title, found[1].metadata) == (None, {})
    assert found.to_arrow().column("text").to_pylist() == frame.column("text").to_pylist()
    work(store)
    assert ev.search("tea").to_arrow().column("id").to_pylist()[0] == "1"
    with pytest.raises(InvalidRecord, match="unknown record field 'txt'; did you mean 'text'"):
        list(ev.add_many(KIND, pa.table({"txt": ["x"]})))
    with pytest.raises(InvalidRecord, match="text: is empty") as raised:
        list(
            ev.add_many(KIND, pa.table({"text": [f"{n}" if n < 1500 else "" for n in range(1600)]}))
        )
    assert raised.value.position == 1500
    assert ev.count() == 1502


def test_typed_objects_come_back_as_the_way_can_give_them(ev: Evervec, store: Evervec) -> None:
    store.register(Kind("tea", model=Tea, text="{name}"))
    tea = Tea(name="assam", pickedOn=date(2024, 5, 1), price=Decimal("1.10"))
    ev.add("tea", tea, id="1")
    ev.add(KIND, "assam too", id="1")
    work(store)
    plain = {"name": "assam", "pickedOn": "2024-05-01", "price": "1.10"}
    record = ev.get("tea", "1")
    assert record is not None
    hits = {hit.kind: hit.data for hit in ev.search("assam")}
    for data in (record.data, ev.records("tea")[0].data, hits["tea"]):
        assert data in (tea, plain)
    assert hits[KIND] is None
    assert ev.search("assam", kind="tea", fields=["title"])[0].data is None
    assert ev.search("assam", kind="tea", fields=["data"])[0].data == hits["tea"]
    ev.add("tea", record.data, id="2")
    again = store.get("tea", "2")
    assert again is not None
    assert again.data == tea


def test_a_boxed_job_is_looked_at(ev: Evervec) -> None:
    job_id = ev.add(KIND, "hidden", id="1", title="T", metadata={"a": 1}, boxed=True).job_id
    content = ev.queue.peek(job_id)
    assert content is not None
    assert (content.title, content.text, content.metadata, content.weight) == (
        "T", "hidden", {"a": 1}, 1.0,
    )  # fmt: skip
    assert ev.get(KIND, "1") is None
    with pytest.raises(EvervecError, match="does not exist"):
        ev.queue.peek(job_id + 1000)


def test_what_happened_is_the_same_by_all_ways(
    ev: Evervec, store: Evervec, file_world: World
) -> None:
    ev.add(KIND, "text", id="1")
    ev.add(KIND, "text", id="2")
    fail_for_good(store, "2")
    work(store)
    store.queue.recorder.flush()
    file_world.clock.move(1)
    points = ev.history(timedelta(hours=2), step=timedelta(minutes=2), kind=KIND)
    assert points == store.history(timedelta(hours=2), step=120, kind=KIND)
    assert (sum(p.done for p in points), sum(p.failed for p in points)) == (1, 1)
    (group,) = ev.failures(kind=KIND)
    assert (group.message, group.failed, group.open) == ("it is bad", 1, 1)
    assert ev.dismiss_failures(group.fingerprint) == 1
    assert ev.failures() == []
    assert [g.fingerprint for g in ev.failures(5, dismissed=True)] == [group.fingerprint]
    with pytest.raises(InvalidArgument):
        ev.history(step=30)


def test_jobs_of_a_filter_are_changed_by_all_ways(ev: Evervec, store: Evervec) -> None:
    for n in range(4):
        ev.add(KIND, "text", id=f"n{n}")
    fail_for_good(store, "n0")
    bad = JobFilter(error="IT IS", older_than=timedelta(0), status=["failed", "done"])
    assert [job.record_id for job in ev.queue.jobs_where(bad)] == ["n0"]
    assert [job.record_id for job in ev.queue.jobs_where(JobFilter(), limit=3)] == [
        "n3",
        "n2",
        "n1",
    ]
    assert (ev.queue.retry_where(bad, dry_run=True), ev.queue.retry_where(bad)) == (1, 1)
    assert ev.queue.set_priority_where(JobFilter(prefix="n3"), 7) == 1
    (job,) = ev.queue.jobs_where(JobFilter(prefix="n3"))
    assert job.priority == 7
    assert ev.queue.cancel_where(JobFilter(kind=KIND, status="pending"), dry_run=True) == 4
    assert ev.queue.cancel_where(JobFilter(kind=KIND, status="pending")) == 4
    assert ev.queue.jobs_where(JobFilter()) == []
