"""Backfill: what lacks current vectors is enqueued behind live work, and only that."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel

from evervec import ContentChunker, Evervec, Kind, Status
from evervec.embedders.hashing import HashingEmbedder
from support.world import DAY, KIND, World, add_all, assert_in_step, claim_one, job_of, step, work


class Note(BaseModel):
    head: str
    body: str


def kind(template: Any) -> Kind:
    return Kind("typed", model=Note, text=template)


def reopened(memory: World, **settings: Any) -> Evervec:
    """The same store as another process opens it later."""
    return Evervec(
        memory.ev.store,
        memory.ev.index,
        settings.pop("embedder", memory.embedder),
        memory.ev.tenant,
        type(memory.ev.settings).load(
            {"clock": memory.clock, "chunk_tokens": 16, **settings}, environ={}
        ),
    )


def test_where_nothing_lacks_vectors_nothing_is_enqueued(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    assert memory.ev.backfill().enqueued == 0, "they have jobs"
    work(memory.ev)
    found = memory.ev.backfill()
    assert (found.records, found.rendered, found.tokens, found.enqueued) == (0, 0, 0, 0)


def test_a_cancelled_job_is_made_up_for(memory: World) -> None:
    tickets = add_all(memory.ev, KIND, "alpha", "beta")
    memory.ev.queue.cancel(tickets[0].job_id)
    work(memory.ev)
    assert memory.ev.backfill(dry_run=True).records == 1
    assert memory.ev.queue.stats().pending == 0, "a dry run changes nothing"
    assert memory.ev.backfill("other").records == 0
    found = memory.ev.backfill(KIND)
    assert (found.records, found.enqueued, found.tokens) == (1, 1, round(len("alpha") / 4))
    work(memory.ev)
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})


def test_dead_letters_are_left_to_whoever_retries_them(memory: World) -> None:
    add_all(memory.ev, KIND, "alpha")
    memory.ev.queue.fail(claim_one(memory.ev), "broken", permanent=True)
    assert memory.ev.backfill().records == 0
    assert job_of(memory.ev, "0").status is Status.FAILED


def test_live_writes_overtake_it(memory: World) -> None:
    tickets = add_all(memory.ev, KIND, "alpha", "beta")
    for ticket in tickets:
        memory.ev.queue.cancel(ticket.job_id)
    work(memory.ev)
    memory.ev.backfill()
    memory.ev.add(KIND, "live", id="live")
    assert claim_one(memory.ev).record_id == "live"
    assert {job_of(memory.ev, id).priority for id in ("0", "1")} == {-100}


def test_another_size_of_chunks_is_applied_by_it(memory: World) -> None:
    text = "\n\n".join(f"{word} " * 8 for word in ("alpha", "beta", "gamma"))
    memory.ev.add(KIND, text, id="1")
    work(memory.ev)
    larger = reopened(memory, chunk_tokens=100)
    work(larger)
    assert len(memory.embedder.texts) == 3, "nothing changes by itself"
    assert larger.backfill(dry_run=True).records == 1
    assert larger.backfill().enqueued == 1
    work(larger)
    assert len(memory.embedder.texts) == 4
    assert larger.verify().clean
    assert larger.backfill().records == 0


def test_a_worker_that_starts_with_another_chunker_applies_it(memory: World) -> None:
    memory.ev.register(Kind("long", chunker=ContentChunker(32)))
    text = "one two three four five six seven eight nine ten eleven twelve"
    memory.ev.add("long", text, id="1")
    memory.ev.process_all()
    asked = len(memory.embedder.texts)
    later = reopened(memory)
    later.register(Kind("long", chunker=ContentChunker(100)))
    later.process_all()
    assert memory.embedder.texts[asked:] == [text]
    assert later.verify().clean
    later.process_all()
    assert len(memory.embedder.texts) == asked + 1


def test_a_worker_that_starts_with_another_template_applies_it(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    memory.ev.register(kind("{head}"))
    for n in range(3):
        memory.ev.add("typed", {"head": f"head {n}", "body": f"body {n}"}, id=n, metadata={"n": n})
    memory.ev.process_all()
    before = memory.ev.get("typed", "1")
    memory.clock.move(1000)
    later = reopened(memory)
    later.register(kind("{head}: {body}"))
    with caplog.at_level(logging.INFO, "evervec"):
        assert later.process_all().succeeded == 3
    assert "backfill: embedded records" in caplog.messages
    assert "embedding backfill complete" in caplog.messages
    after = later.get("typed", "1")
    assert before is not None
    assert after is not None
    assert after.text == "head 1: body 1"
    assert (after.metadata, after.updated_at) == (before.metadata, before.updated_at)
    asked = len(memory.embedder.texts)
    later.process_all()
    reopened(memory).process_all()
    assert len(memory.embedder.texts) == asked


def test_a_template_that_is_a_function_is_known_again(memory: World) -> None:
    def first(note: Note) -> str:
        return note.head

    def second(note: Note) -> str:
        return note.head + note.body

    assert kind(first).fingerprint() == kind(first).fingerprint()
    assert kind(first).fingerprint() != kind(second).fingerprint()
    assert kind("{head}").fingerprint() != kind("{body}").fingerprint()


def test_an_edit_that_comes_between_is_not_undone(memory: World) -> None:
    memory.ev.register(kind("{head}"))
    memory.ev.add("typed", {"head": "old", "body": "text"}, id="1")
    memory.ev.process_all()
    later = reopened(memory)
    later.register(kind("{head}: {body}"))
    typed = later.store.records.typed

    def overtaken(*given: Any) -> Any:
        found = typed(*given)
        memory.ev.add("typed", {"head": "newer", "body": "text"}, id="1")
        return found

    later.store.records.typed = overtaken  # type: ignore[method-assign, assignment]
    later.backfill()
    record = later.get("typed", "1")
    assert record is not None
    assert record.text == "newer"
    later.store.records.typed = typed  # type: ignore[method-assign]


def test_money_is_part_of_the_estimate(memory: World) -> None:
    ticket = memory.ev.add(KIND, "word " * 2000, id="1")
    memory.ev.queue.cancel(ticket.job_id)
    add_all(memory.ev, KIND, "so that there is a version")
    work(memory.ev)
    priced = reopened(memory, price_per_million=2.0)
    found = priced.backfill(dry_run=True)
    assert found.money == pytest.approx(found.tokens * 2e-6)
    assert found.money > 0


def bury(memory: World, ev: Evervec) -> None:
    """Make one record a dead letter, and purge it as the sweep does in time."""
    ev.queue.fail(claim_one(ev), "broken", permanent=True)
    memory.clock.move(100 * DAY)
    ev._housekeeping.sweep()
    assert ev.queue.failed() == []


def test_a_worker_that_starts_embeds_what_lost_its_dead_letter(
    memory: World, caplog: pytest.LogCaptureFixture
) -> None:
    add_all(memory.ev, KIND, "alpha")
    bury(memory, memory.ev)
    memory.ev.add(KIND, "beta", id="1")
    with caplog.at_level(logging.INFO, "evervec"):
        assert reopened(memory).process_all().succeeded == 2
    assert_in_step(memory.ev, {"0": "alpha", "1": "beta"})
    told = [r for r in caplog.records if r.message == "backfill: embedded records"]
    assert [(r.count, r.batch) for r in told] == [(1, 1)]  # type: ignore[attr-defined]
    (complete,) = [r for r in caplog.records if r.message == "embedding backfill complete"]
    assert complete.count == 1  # type: ignore[attr-defined]


def test_a_worker_that_starts_reads_no_records_while_none_lost_a_job(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(memory.ev, KIND, "alpha", "beta")
    memory.ev.process_all()
    looked: list[int] = []
    expected = memory.ev.store.records.expected

    def look(tenant: str | None, version: int, after: int, limit: int) -> list[Any]:
        looked.append(after)
        return expected(tenant, version, after, limit)

    monkeypatch.setattr(memory.ev.store.records, "expected", look)
    reopened(memory).process_all()
    assert looked == []
    ticket = memory.ev.add(KIND, "gamma", id="2")
    bury(memory, memory.ev)
    reopened(memory).process_all()
    first = job_of(memory.ev, "2").record
    assert looked[0] == first - 1, "it begins at the first that lost its job"
    assert memory.ev.store.jobs.settled([(memory.ev.tenant, ticket)]) == [Status.DONE]
    looked.clear()
    reopened(memory).process_all()
    assert looked == []


def test_a_job_that_somebody_cancelled_is_not_made_up_for_at_a_start(memory: World) -> None:
    (ticket,) = add_all(memory.ev, KIND, "alpha")
    memory.ev.queue.cancel(ticket.job_id)
    assert reopened(memory).process_all().processed == 0


def test_another_template_does_not_replace_what_waits_in_a_box(memory: World) -> None:
    memory.ev.register(kind("{head}"))
    memory.ev.add("typed", {"head": "old", "body": "text"}, id="1")
    memory.ev.process_all()
    memory.ev.add("typed", {"head": "new", "body": "text"}, id="1", boxed=True)
    memory.ev.add("typed", {"head": "first", "body": "text"}, id="2", boxed=True)
    later = reopened(memory)
    later.register(kind("{head}: {body}"))
    for _ in range(2):  # the box is opened first, and then rendered by the next start
        later.process_all()
    texts = {record.id: record.text for record in later.records("typed")}
    assert texts == {"1": "new: text", "2": "first: text"}


def test_another_template_does_not_replace_a_row_that_is_to_be_loaded(memory: World) -> None:
    rows = {"1": {"head": "old", "body": "text"}}
    memory.ev.register(Kind("typed", model=Note, text="{head}", load=rows.get))
    memory.ev.queue.enqueue("typed", "1")
    memory.ev.process_all()
    rows["1"] = {"head": "new", "body": "text"}
    memory.ev.queue.enqueue("typed", "1")
    later = reopened(memory)
    later.register(Kind("typed", model=Note, text="{head}: {body}", load=rows.get))
    later.process_all()
    record = later.get("typed", "1")
    assert record is not None
    assert record.text == "new: text"


def test_a_row_that_one_version_read_with_the_old_template_is_read_again(memory: World) -> None:
    rows = {"1": {"head": "new", "body": "text"}}
    memory.ev.register(Kind("typed", model=Note, text="{head}", load=rows.get))
    memory.ev.queue.enqueue("typed", "1")
    memory.ev.process_all()
    migration = memory.ev.migrate(HashingEmbedder(32))
    memory.ev.queue.enqueue("typed", "1")
    serving = memory.ev.store.versions.collections()[0].version
    step(memory.ev, memory.ev.queue.claim(1, versions=[serving]))
    later = reopened(memory)
    later.models.add(HashingEmbedder(32))
    later.register(Kind("typed", model=Note, text="{head}: {body}", load=rows.get))
    later.process_all()
    migration.wait(0)
    assert later.get("typed", "1").text == "new: text"  # type: ignore[union-attr]
    assert later.verify().clean
