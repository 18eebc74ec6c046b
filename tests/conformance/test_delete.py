"""Deleting: gone from every answer at once, from the index soon, and for good."""

from pathlib import Path

import pytest

from evervec import Kind, LeaseLost, Status
from evervec.embedders.hashing import HashingEmbedder
from support.engines import OWN_PAIRS
from support.world import (
    KIND,
    World,
    add_all,
    assert_in_step,
    claim_one,
    fail_for_good,
    held,
    job_of,
    step,
    work,
)


@pytest.mark.every_index
def test_a_deleted_record_disappears_from_every_answer_at_once(world: World) -> None:
    add_all(world.ev, KIND, "alpha beta", "alpha gamma")
    work(world.ev)
    world.ev.delete(KIND, "0")
    assert world.ev.get(KIND, "0") is None
    assert [r.id for r in world.ev.records()] == ["1"]
    for mode in ("hybrid", "semantic", "text"):
        assert [h.id for h in world.ev.search("alpha", mode=mode)] == ["1"]


@pytest.mark.every_index
def test_its_points_leave_the_index_with_its_job(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    work(world.ev)
    ticket = world.ev.delete(KIND, "0")
    assert len(held(world.ev)) == 2
    work(world.ev)
    assert world.ev.wait(ticket, 0).status is Status.DONE
    assert_in_step(world.ev, {"1": "beta"})


def test_an_unknown_id_is_not_accepted(world: World) -> None:
    ticket = world.ev.delete(KIND, "nothing", wait=0)
    assert not ticket.accepted
    assert world.ev.queue.stats().pending == 0


def test_a_second_delete_is_not_accepted(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    assert world.ev.delete(KIND, "1").accepted
    assert not world.ev.delete(KIND, "1").accepted
    work(world.ev)
    assert not world.ev.delete(KIND, "1").accepted
    assert world.ev.queue.stats().pending == 0


def test_the_same_id_twice_in_a_batch_is_deleted_once(world: World) -> None:
    add_all(world.ev, KIND, "alpha", "beta")
    tickets = world.ev.store.changes.delete("default", KIND, ["0", "1", "0", "2"])
    assert [t.id for t in tickets] == ["0", "1", "0", "2"]
    assert [t.accepted for t in tickets] == [True, True, False, False]


def test_deleting_before_the_first_claim_embeds_nothing(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    world.ev.delete(KIND, "1")
    work(world.ev)
    assert world.embedder.calls == []
    assert_in_step(world.ev, {})


@pytest.mark.every_index
def test_a_record_deleted_while_it_is_processed_stays_deleted(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    jobs = world.ev.pipeline.claim(1)
    batch, _ = world.ev.pipeline.prepare(jobs)
    world.ev.delete(KIND, "1")
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    assert world.ev.get(KIND, "1") is None
    assert not world.ev.search("alpha")
    work(world.ev)
    assert_in_step(world.ev, {})


@pytest.mark.every_index
def test_a_late_worker_never_brings_a_deleted_record_back(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    late = world.ev.pipeline.claim(1)
    batch, _ = world.ev.pipeline.prepare(late)
    world.ev.pipeline.embed(batch)
    world.clock.move(61)
    world.ev.queue.recover_stuck()
    world.ev.delete(KIND, "1")
    work(world.ev)
    assert world.ev.pipeline.write(batch).lost == 1
    assert_in_step(world.ev, {})
    with pytest.raises(LeaseLost):
        world.ev.queue.finish(late[0])


def test_a_record_added_again_after_its_delete_is_new(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    assert world.ev.add(KIND, "beta", id="1").is_new
    assert [r.text for r in world.ev.records()] == ["beta"]
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})
    assert not world.ev.search("alpha", mode="text")


@pytest.mark.every_index
def test_a_record_added_again_with_its_old_text_is_in_the_index_again(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    work(world.ev)
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})
    assert [h.id for h in world.ev.search("alpha", mode="semantic")] == ["1"]


def test_a_dead_letter_can_be_deleted(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    fail_for_good(world.ev)
    assert world.ev.delete(KIND, "1").accepted
    work(world.ev)
    assert job_of(world.ev, "1").status is Status.DONE
    assert_in_step(world.ev, {})


def test_the_history_of_a_deleted_record_stays(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    work(world.ev)
    assert len(world.ev.queue.history(KIND, "1")) == 2


def test_a_tenant_cannot_delete_anothers_record(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    assert not world.tenant("other").delete(KIND, "1").accepted
    assert world.ev.get(KIND, "1") is not None


@pytest.mark.every_index
def test_the_points_of_a_deleted_record_go_even_if_it_is_enqueued_once_more(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    world.ev.queue.enqueue(KIND, "1")
    work(world.ev)
    assert held(world.ev) == {}


@pytest.mark.every_index
def test_an_update_after_a_delete_that_is_being_processed_wins(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    jobs = world.ev.pipeline.claim(1)
    world.ev.add(KIND, "beta", id="1")
    step(world.ev, jobs)
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


@pytest.mark.every_index
def test_a_delete_that_was_prepared_before_an_update_does_not_undo_it(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.add(KIND, "beta", id="1")
    world.ev.pipeline.write(batch)
    assert world.ev.get(KIND, "1") is not None
    assert claim_one(world.ev).record_id == "1"


@pytest.mark.every_index
def test_a_cancelled_removal_is_found_and_mended_by_verify(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.queue.cancel(world.ev.delete(KIND, "1").job_id)
    assert world.ev.verify(repair=True).orphaned == 1
    assert_in_step(world.ev, {})


@pytest.mark.parametrize("pair", OWN_PAIRS, ids="-".join)
def test_what_was_read_before_a_delete_is_not_written_once_the_record_is_back(
    pair: tuple[str, str], tmp_path: Path
) -> None:
    world = World(pair, tmp_path)
    try:
        world.ev.add(KIND, "alpha", id="1")
        batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
        world.ev.pipeline.embed(batch)
        world.ev.delete(KIND, "1")
        world.ev.add(KIND, "beta", id="1")
        world.ev.pipeline.write(batch)
        assert held(world.ev) == {}
        assert [hit.id for hit in world.ev.search("alpha", mode="semantic")] == []
        work(world.ev)
        assert_in_step(world.ev, {"1": "beta"})
    finally:
        world.close()


def test_what_only_another_version_has_yet_to_load_is_deleted(world: World) -> None:
    ev = world.ev
    ev.register(Kind("row", load={"1": "of a row"}.get))
    ev.add("row", "by hand", id="2")
    work(ev)
    ev.migrate(HashingEmbedder(32))
    ev.queue.enqueue("row", "1")
    for job in ev.queue.jobs(kind="row", id="1"):
        if job.embedding_version == "hashing-64":
            ev.queue.cancel(job.job_id)
    assert ev.delete("row", "1").accepted
    work(ev)
    assert ev.get("row", "1") is None
