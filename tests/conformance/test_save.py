"""Saving: a record and its job together, only what changed, only the latest version."""

from contextlib import closing
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from evervec import EvervecError, InvalidArgument, InvalidRecord, Status, Ticket
from evervec.errors import ValueRefused
from evervec.records.drafts import LONGEST_ID, LONGEST_NAME, make_draft
from evervec.records.writer import save_each
from evervec.stores.values import Draft
from support.world import KIND, START, World, assert_in_step, claim_one, fail_for_good, job_of, work


def test_a_record_is_read_back_as_it_was_given(world: World) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    ticket = world.ev.add(
        KIND, "the text", id="1", title="A title", metadata={"a": [1, "x", None]}, weight=0.25,
        created_at=moment, updated_at=moment,
    )  # fmt: skip
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.tenant, record.kind, record.id) == ("default", KIND, "1")
    assert (record.title, record.text) == ("A title", "the text")
    assert (record.metadata, record.weight) == ({"a": [1, "x", None]}, 0.25)
    assert (record.created_at, record.updated_at) == (moment, moment)
    assert record.seq == ticket.seq
    assert not record.embedded


def test_the_longest_tenant_kind_and_id_fit_together_and_longer_ones_are_refused(
    world: World,
) -> None:
    noise = Random(7).randbytes(LONGEST_ID + 2 * LONGEST_NAME).hex()  # no engine compresses it
    tenant, kind = noise[-LONGEST_NAME:], noise[-2 * LONGEST_NAME : -LONGEST_NAME]
    ids = [noise[:LONGEST_ID], "é" * (LONGEST_ID // 2), "9" * LONGEST_ID]
    ev = world.ev.of(tenant)
    for id in ids:
        ev.add(kind, f"the text {id[0]}", id=id)
    work(ev)
    assert {r.id for r in ev.records(kind)} == set(ids)
    assert all(record.embedded for record in ev.records(kind))
    assert {hit.id for hit in ev.search("text", k=9)} == set(ids)
    for id in [*(f"{id}x" for id in ids), 10**LONGEST_ID, 10**5000]:
        with pytest.raises(InvalidRecord, match="id: "):
            ev.add(KIND, "the text", id=id)
    with pytest.raises(InvalidArgument, match="kind: has 257 bytes"):
        ev.add(f"{kind}x", "the text", id=1)
    with pytest.raises(InvalidArgument, match="tenant: has 257 bytes"):
        world.ev.of(f"{tenant}x")
    results = ev.queue.enqueue_many(KIND, ["a", f"{ids[0]}x", "b"])
    assert [bool(result.error) for result in results] == [False, True, False]
    with pytest.raises(InvalidRecord, match="position 1") as refused:
        list(ev.add_many(KIND, [{"id": id, "text": "x"} for id in ("1", f"{ids[0]}x", "2")]))
    assert refused.value.position == 1
    assert [record.id for record in ev.records(KIND)] == ["1"]


def test_two_drafts_of_one_record_in_a_batch_have_the_same_job(world: World) -> None:
    texts = ("first", "second")
    tickets = list(world.ev.add_many(KIND, ({"id": "1", "text": text} for text in texts)))
    assert {ticket.job_id for ticket in tickets} == {job_of(world.ev, "1").job_id}


def test_a_record_without_a_weight_counts_as_one_and_without_times_as_now(world: World) -> None:
    world.ev.add(KIND, "the text", id=1)
    record = world.ev.get(KIND, 1)
    assert record is not None
    assert record.weight == 1.0
    assert record.created_at == record.updated_at == datetime.fromtimestamp(START, UTC)


def test_a_saved_record_has_its_job(world: World) -> None:
    ticket = world.ev.add(KIND, "the text", id="1", priority=3, max_attempts=2)
    job = job_of(world.ev, "1")
    assert (job.job_id, job.seq, job.status) == (ticket.job_id, ticket.seq, Status.PENDING)
    assert (job.priority, job.attempts, job.max_attempts) == (3, 0, 2)
    assert (job.tenant, job.kind, job.record_id) == ("default", KIND, "1")
    assert ticket.is_new
    assert ticket.accepted


def test_every_later_change_has_a_larger_seq_deletes_included(world: World) -> None:
    ev = world.ev
    seqs = [
        ev.add(KIND, "one", id="1").seq,
        ev.add(KIND, "two", id="2").seq,
        ev.add(KIND, "one more", id="1").seq,
        ev.delete(KIND, "2").seq,
        *(t.seq for t in ev.add_many(KIND, [{"id": i, "text": "x"} for i in range(3)])),
        ev.delete(KIND, "1").seq,
    ]
    assert seqs == sorted(set(seqs))


def test_many_updates_before_a_claim_are_one_job_and_cost_one_embedding(world: World) -> None:
    tickets = [world.ev.add(KIND, f"version {n}", id="1") for n in range(20)]
    assert len({t.job_id for t in tickets}) == 1
    assert [t.is_new for t in tickets] == [True] + [False] * 19
    assert world.ev.queue.stats().pending == 1
    work(world.ev)
    assert world.embedder.texts == ["version 19"]
    assert_in_step(world.ev, {"1": "version 19"})


def test_the_same_again_enqueues_nothing_and_names_the_finished_job(world: World) -> None:
    first = world.ev.add(KIND, "the text", id="1", title="t", metadata={"a": 1}, weight=0.5)
    work(world.ev)
    again = world.ev.add(KIND, "the text", id="1", title="t", metadata={"a": 1}, weight=0.5)
    assert (again.job_id, again.seq) == (first.job_id, first.seq)
    assert again.accepted
    assert not again.is_new
    assert world.ev.wait(again, 0).status is Status.DONE
    assert world.ev.queue.stats().pending == 0


def test_the_same_again_while_it_waits_changes_nothing(world: World) -> None:
    first = world.ev.add(KIND, "the text", id="1")
    again = world.ev.add(KIND, "the text", id="1")
    assert (again.job_id, again.seq) == (first.job_id, first.seq)


def test_the_same_again_after_its_done_job_was_purged_enqueues_nothing(world: World) -> None:
    first = world.ev.add(KIND, "the text", id="1")
    work(world.ev)
    world.clock.move(10)
    assert world.ev.queue.purge_done(datetime.fromtimestamp(world.clock.now, UTC)) == 1
    again = world.ev.add(KIND, "the text", id="1")
    assert again.seq == first.seq
    assert world.ev.queue.stats().pending == 0
    assert world.ev.wait(again, 0).status is Status.DONE


def test_the_same_again_after_its_job_failed_is_tried_again(world: World) -> None:
    world.ev.add(KIND, "the text", id="1")
    fail_for_good(world.ev)
    world.ev.add(KIND, "the text", id="1")
    assert job_of(world.ev, "1").status is Status.PENDING
    work(world.ev)
    assert_in_step(world.ev, {"1": "the text"})


def test_the_same_again_after_its_job_was_cancelled_is_enqueued_again(world: World) -> None:
    ticket = world.ev.add(KIND, "the text", id="1")
    world.ev.queue.cancel(ticket.job_id)
    world.ev.add(KIND, "the text", id="1")
    work(world.ev)
    assert_in_step(world.ev, {"1": "the text"})


@pytest.mark.parametrize(
    "change", [{"metadata": {"a": 2}}, {"weight": 0.1}, {"metadata": {"a": 2}, "weight": 0.1}]
)
def test_metadata_or_weight_alone_embeds_nothing(world: World, change: dict[str, object]) -> None:
    before = {"metadata": {"a": 1}, "weight": 0.9}
    world.ev.add(KIND, "the text", id="1", **before)  # type: ignore[arg-type]
    work(world.ev)
    asked = len(world.embedder.calls)
    ticket = world.ev.add(KIND, "the text", id="1", **{**before, **change})  # type: ignore[arg-type]
    work(world.ev)
    assert world.ev.wait(ticket, 0).status is Status.DONE
    assert len(world.embedder.calls) == asked
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert {"metadata": record.metadata, "weight": record.weight} == {**before, **change}
    assert record.embedded
    last = world.ev.queue.history(KIND, "1")[-1]
    assert (last.chunks_embedded, last.chunks_reused) == (0, 1)
    assert_in_step(world.ev, {"1": "the text"})


def test_a_new_title_is_embedded_with_every_chunk(world: World) -> None:
    world.ev.add(KIND, "the text", id="1", title="Old")
    work(world.ev)
    world.ev.add(KIND, "the text", id="1", title="New")
    work(world.ev)
    assert world.embedder.texts == ["Old\n\nthe text", "New\n\nthe text"]


def test_only_a_newer_version_is_accepted(world: World) -> None:
    first = world.ev.add(KIND, "five", id="1", version=5)
    for stale in (5, 4, -1):
        ticket = world.ev.add(KIND, "stale", id="1", version=stale)
        assert not ticket.accepted
        assert (ticket.job_id, ticket.seq) == (first.job_id, first.seq)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "five"
    assert world.ev.add(KIND, "six", id="1", version=6).accepted
    work(world.ev)
    assert_in_step(world.ev, {"1": "six"})


def test_a_newer_version_of_the_same_content_still_outdates_older_ones(world: World) -> None:
    first = world.ev.add(KIND, "same", id="1", version=1)
    again = world.ev.add(KIND, "same", id="1", version=7)
    assert again.accepted
    assert again.seq == first.seq
    assert not world.ev.add(KIND, "late", id="1", version=6).accepted


def test_a_stale_version_inside_a_batch_is_discarded(world: World) -> None:
    tickets = list(
        world.ev.add_many(
            KIND,
            [
                {"id": "1", "text": "two", "version": 2},
                {"id": "1", "text": "one", "version": 1},
                {"id": "2", "text": "other"},
            ],
        )
    )
    assert [t.accepted for t in tickets] == [True, False, True]
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "two"


def test_the_same_record_twice_in_a_batch_is_one_job_of_the_later(world: World) -> None:
    tickets = list(
        world.ev.add_many(
            KIND,
            [
                {"id": "1", "text": "early"},
                {"id": "2", "text": "between"},
                {"id": "1", "text": "later"},
            ],
        )
    )
    assert [t.id for t in tickets] == ["1", "2", "1"]
    assert tickets[0].job_id == tickets[2].job_id
    assert tickets[0].seq < tickets[1].seq < tickets[2].seq
    assert [t.is_new for t in tickets] == [True, True, False]
    assert world.ev.queue.stats().pending == 2
    work(world.ev)
    assert_in_step(world.ev, {"1": "later", "2": "between"})
    for ticket in tickets:
        assert world.ev.wait(ticket, 0).status is Status.DONE


def test_a_batch_that_goes_away_and_back_leaves_the_first_content(world: World) -> None:
    world.ev.add(KIND, "home", id="1")
    work(world.ev)
    list(world.ev.add_many(KIND, [{"id": "1", "text": "away"}, {"id": "1", "text": "home"}]))
    work(world.ev)
    assert_in_step(world.ev, {"1": "home"})
    assert world.embedder.texts == ["home"]


def test_full_text_shows_a_new_version_at_once_and_vectors_the_old_one(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.add(KIND, "giraffe", id="1")
    assert [h.id for h in world.ev.search("giraffe", mode="text")] == ["1"]
    assert not world.ev.search("zebra", mode="text")
    old = world.ev.search("zebra", mode="semantic")
    assert old[0].similarity == pytest.approx(1.0, abs=1e-5)
    work(world.ev)
    new = world.ev.search("giraffe", mode="semantic")
    assert new[0].similarity == pytest.approx(1.0, abs=1e-5)


def test_created_at_stays_and_updated_at_moves_with_an_update(world: World) -> None:
    world.ev.add(KIND, "one", id="1")
    world.clock.move(60)
    world.ev.add(KIND, "two", id="1")
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.created_at.timestamp() == START
    assert record.updated_at.timestamp() == START + 60


def test_times_alone_change_without_a_job(world: World) -> None:
    ticket = world.ev.add(KIND, "one", id="1")
    work(world.ev)
    moment = datetime(2020, 1, 1, tzinfo=UTC)
    again = world.ev.add(KIND, "one", id="1", created_at=moment, updated_at=moment)
    assert again.seq == ticket.seq
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.created_at, record.updated_at) == (moment, moment)
    assert world.ev.queue.stats().pending == 0


def test_a_replacement_takes_the_higher_priority(world: World) -> None:
    for id, before, after in (("low", 5, 1), ("high", 1, 5)):
        world.ev.add(KIND, "one", id=id, priority=before)
        world.ev.add(KIND, "two", id=id, priority=after)
        assert job_of(world.ev, id).priority == 5


def test_a_replacement_takes_the_earlier_time(world: World) -> None:
    for id, before, after in (("later", 10.0, 99.0), ("sooner", 99.0, 10.0)):
        world.ev.add(KIND, "one", id=id, delay=before)
        world.ev.add(KIND, "two", id=id, delay=after)
        assert job_of(world.ev, id).scheduled_for.timestamp() == START + 10


def test_a_replacement_starts_its_attempts_anew(world: World) -> None:
    world.ev.add(KIND, "one", id="1", max_attempts=9)
    world.ev.queue.fail(claim_one(world.ev), "not now")
    assert job_of(world.ev, "1").attempts == 1
    world.ev.add(KIND, "two", id="1", max_attempts=4)
    job = job_of(world.ev, "1")
    assert (job.attempts, job.max_attempts, job.error) == (0, 4, None)


def test_a_replacement_of_a_dead_letter_brings_it_back(world: World) -> None:
    world.ev.add(KIND, "one", id="1", priority=7)
    fail_for_good(world.ev)
    world.ev.add(KIND, "two", id="1")
    job = job_of(world.ev, "1")
    assert (job.status, job.attempts, job.error, job.completed_at) == (
        Status.PENDING, 0, None, None,
    )  # fmt: skip


def test_two_tenants_may_use_the_same_kind_and_id(world: World) -> None:
    other = world.tenant("other")
    mine, theirs = world.ev.add(KIND, "mine", id="1"), other.add(KIND, "theirs", id="1")
    assert mine.job_id != theirs.job_id
    work(world.ev)
    assert_in_step(world.ev, {"1": "mine"})
    assert_in_step(other, {"1": "theirs"})


def test_a_batch_of_drafts_is_saved_whole_or_not_at_all(world: World) -> None:
    """Whatever the store refuses in the middle of a batch undoes what went before it."""
    good = make_draft("good", {"id": "1"}, None)
    bad = make_draft("bad", {"id": "2"}, None)
    bad.weight = None  # type: ignore[assignment]
    with pytest.raises(Exception, match=r".+"):
        world.ev.store.changes.save("default", KIND, [good, bad])
    assert world.ev.records() == []
    assert world.ev.queue.stats().pending == 0
    assert world.ev.add(KIND, "good", id="1").is_new


def refused_draft(id: str) -> Draft:
    """A draft that passes for one, but not in the store."""
    draft = make_draft("bad", {"id": id}, None)
    draft.weight = None  # type: ignore[assignment]
    return draft


def test_a_draft_that_the_store_refuses_fails_alone(world: World) -> None:
    drafts = [make_draft(f"text {n}", {"id": str(n)}, None) for n in range(20)]
    for n in (3, 4, 19):
        drafts[n] = refused_draft(str(n))
    saved = list(save_each(world.ev.store.changes, "default", KIND, drafts))
    assert [n for n, end in enumerate(saved) if isinstance(end, ValueRefused)] == [3, 4, 19]
    assert [end.id for end in saved if isinstance(end, Ticket)] == [
        str(n) for n in range(20) if n not in (3, 4, 19)
    ]
    assert len(world.ev.records()) == 17


def test_add_many_ends_at_a_record_that_the_store_refuses(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = world.ev._writer._draft

    def made(*given: Any) -> Draft:
        draft = real(*given)
        return refused_draft(draft.id) if draft.text == "bad" else draft

    monkeypatch.setattr(world.ev._writer, "_draft", made)
    tickets = world.ev.add_many(KIND, ["a", "b", "c", "bad", "d"])
    assert [next(tickets).kind for _ in range(3)] == [KIND] * 3
    with pytest.raises(InvalidRecord, match="position 3") as refused:
        next(tickets)
    assert refused.value.position == 3
    assert {record.text for record in world.ev.records()} == {"a", "b", "c"}


def test_a_record_whose_job_is_refused_is_not_saved(file_world: World) -> None:
    with closing(file_world.connect()) as conn:
        conn.execute(
            "create trigger no_jobs before insert on evervec_jobs "
            "begin select raise(abort, 'no jobs today'); end"
        )
    with pytest.raises(EvervecError, match="no jobs today"):
        file_world.ev.add(KIND, "alpha", id="1")
    assert file_world.ev.get(KIND, "1") is None
    assert file_world.ev.search("alpha", mode="text") == []
