"""Boxed records: invisible until embedded, then there in one step."""

from datetime import timedelta

import pytest

from evervec import InvalidArgument, JobFailed, Status
from support.world import (
    DAY,
    KIND,
    World,
    assert_in_step,
    fail_for_good,
    held,
    job_of,
    work,
)


def box(world: World, text: str = "alpha beta", id: str = "1") -> int:
    return world.ev.add(
        KIND, text, id=id, title="T", metadata={"a": 1}, weight=0.5, boxed=True
    ).job_id


def test_a_boxed_record_is_invisible_until_it_is_embedded(world: World) -> None:
    box(world)
    assert world.ev.get(KIND, "1") is None
    assert world.ev.records() == []
    for mode in ("hybrid", "semantic", "text"):
        assert not world.ev.search("alpha", mode=mode)
    assert world.ev.verify().clean
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.title, record.text, record.metadata, record.weight, record.embedded) == (
        "T", "alpha beta", {"a": 1}, 0.5, True,
    )  # fmt: skip
    for mode in ("hybrid", "semantic", "text"):
        assert [h.id for h in world.ev.search("alpha", mode=mode)] == ["1"]
    assert world.ev.verify().clean


@pytest.mark.every_index
def test_it_moves_in_one_transaction_with_its_points(world: World) -> None:
    """Points in an index apart from the store come before it, and are not seen till then."""
    box(world)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.pipeline.embed(batch)
    seen = []
    finish = batch.make_finish(batch.items[0], world.ev.queue.worker)

    def look(changes: object, conn: object) -> None:
        if world.ev.index.shares_store:
            world.ev.index.apply(changes, conn)  # type: ignore[arg-type]
        seen.append(True)
        raise RuntimeError("cut off")

    if not world.ev.index.shares_store:
        assert finish.change is not None
        world.ev.index.apply([finish.change])
    with pytest.raises(RuntimeError, match="cut off"):
        world.ev.store.leases.finish([finish], look)
    assert seen
    assert world.ev.get(KIND, "1") is None
    assert not world.ev.search("alpha", mode="semantic")
    if world.ev.index.shares_store:
        assert held(world.ev) == {}
    assert job_of(world.ev, "1").status is Status.PROCESSING
    world.ev.pipeline.write(batch)
    assert world.ev.get(KIND, "1") is not None


@pytest.mark.every_index
def test_the_old_version_serves_until_the_boxed_one_is_embedded(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.add(KIND, "giraffe", id="1", boxed=True)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "zebra"
    assert [h.id for h in world.ev.search("zebra", mode="text")] == ["1"]
    assert not world.ev.search("giraffe", mode="text")
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "giraffe"
    assert not world.ev.search("zebra", mode="text")
    assert_in_step(world.ev, {"1": "giraffe"})


def test_a_failed_box_keeps_the_old_version_and_can_be_retried(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    ticket = world.ev.add(KIND, "giraffe", id="1", boxed=True)
    fail_for_good(world.ev)
    assert_in_step(world.ev, {"1": "zebra"})
    world.ev.queue.retry(ticket.job_id)
    work(world.ev)
    assert_in_step(world.ev, {"1": "giraffe"})


def test_its_times_are_those_of_its_add(world: World) -> None:
    added = world.clock.now
    box(world)
    world.clock.move(50)
    box(world, "second")
    world.clock.move(50)
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.created_at.timestamp(), record.updated_at.timestamp()) == (added, added + 50)
    box(world, "third")
    world.clock.move(50)
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.created_at.timestamp(), record.updated_at.timestamp()) == (added, added + 100)
    world.ev.delete(KIND, "1")
    box(world, "again")
    world.clock.move(50)
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.created_at.timestamp(), record.updated_at.timestamp()) == (
        added + 150, added + 150,
    )  # fmt: skip


def test_the_later_of_two_boxes_wins(world: World) -> None:
    box(world, "first")
    box(world, "second")
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "second"
    assert world.embedder.texts == ["T\n\nsecond"]


def test_a_box_that_lands_while_another_is_processed_follows_it(world: World) -> None:
    world.ev.add(KIND, "first", id="1", boxed=True)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.add(KIND, "second", id="1", boxed=True)
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    work(world.ev)
    assert_in_step(world.ev, {"1": "second"})


def test_an_open_update_replaces_a_waiting_box(world: World) -> None:
    world.ev.add(KIND, "boxed", id="1", boxed=True)
    world.ev.add(KIND, "open", id="1")
    assert world.ev.get(KIND, "1") is not None
    work(world.ev)
    assert_in_step(world.ev, {"1": "open"})


@pytest.mark.every_index
def test_an_open_update_while_a_box_is_processed_is_not_undone_by_it(world: World) -> None:
    world.ev.add(KIND, "boxed", id="1", boxed=True)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.add(KIND, "open", id="1")
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "open"
    work(world.ev)
    assert_in_step(world.ev, {"1": "open"})


def test_nor_is_an_open_update_of_a_record_that_was_there_before(world: World) -> None:
    world.ev.add(KIND, "before", id="1")
    work(world.ev)
    world.ev.add(KIND, "boxed", id="1", boxed=True)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.add(KIND, "open", id="1")
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "open"
    work(world.ev)
    assert_in_step(world.ev, {"1": "open"})


def test_the_present_content_again_takes_a_waiting_box_back(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.add(KIND, "giraffe", id="1", boxed=True)
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    assert_in_step(world.ev, {"1": "zebra"})


def test_a_record_deleted_while_boxed_never_appears(world: World) -> None:
    box(world)
    assert world.ev.delete(KIND, "1").accepted
    work(world.ev)
    assert world.ev.get(KIND, "1") is None
    assert_in_step(world.ev, {})


@pytest.mark.every_index
def test_a_record_deleted_while_its_box_is_processed_never_appears(world: World) -> None:
    box(world)
    batch, _ = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.delete(KIND, "1")
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    assert world.ev.get(KIND, "1") is None
    work(world.ev)
    assert world.ev.get(KIND, "1") is None
    assert_in_step(world.ev, {})


def test_a_record_boxed_again_after_a_delete_can_be_deleted_again(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    work(world.ev)
    box(world)
    assert world.ev.delete(KIND, "1").accepted
    work(world.ev)
    assert world.ev.get(KIND, "1") is None
    assert_in_step(world.ev, {})


@pytest.mark.every_index
def test_boxing_after_a_delete_whose_job_waits_leaves_nothing_of_the_old(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    world.ev.add(KIND, "beta", id="1", boxed=True)
    assert world.ev.get(KIND, "1") is None
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_a_cancelled_box_is_gone_and_who_waits_for_it_is_told(world: World) -> None:
    ticket = world.ev.add(KIND, "alpha", id="1", boxed=True)
    world.ev.queue.cancel(ticket.job_id)
    work(world.ev)
    assert world.ev.get(KIND, "1") is None
    with pytest.raises(JobFailed, match="cancelled"):
        world.ev.wait(ticket, 0)


def test_cancelling_a_boxed_update_keeps_the_record(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    ticket = world.ev.add(KIND, "giraffe", id="1", boxed=True)
    world.ev.queue.cancel(ticket.job_id)
    work(world.ev)
    assert_in_step(world.ev, {"1": "zebra"})


def test_purging_never_drops_a_boxed_dead_letter_unless_asked(world: World) -> None:
    job_id = box(world)
    world.ev.add(KIND, "open", id="2")
    fail_for_good(world.ev, "1")
    fail_for_good(world.ev, "2")
    world.clock.move(100 * DAY)
    assert world.ev.queue.purge_dead(timedelta(days=1)) == 1
    world.ev._housekeeping.sweep()
    assert [j.job_id for j in world.ev.queue.failed()] == [job_id]
    world.ev.queue.retry(job_id)
    work(world.ev)
    assert world.ev.get(KIND, "1") is not None


def test_purging_a_boxed_dead_letter_when_asked_drops_it(world: World) -> None:
    job_id = box(world)
    fail_for_good(world.ev)
    world.clock.move(100)
    assert world.ev.queue.purge_dead(timedelta(seconds=1), boxed=True) == 1
    assert world.ev.queue.get(job_id) is None
    assert world.ev.get(KIND, "1") is None
    assert world.ev.add(KIND, "alpha", id="1").is_new


def test_repair_never_drops_the_boxed_update_of_a_dead_letter(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    ticket = world.ev.add(KIND, "giraffe", id="1", boxed=True)
    fail_for_good(world.ev)
    (collection,) = world.ev.store.versions.collections()
    points = world.ev.index.held(collection.version, None, 0, None)
    world.ev.index.remove(collection.version, points)
    assert world.ev.verify(repair=True).missing == 1
    work(world.ev)
    job = world.ev.queue.get(ticket.job_id)
    if job is not None and job.status is Status.FAILED:
        world.ev.queue.retry(ticket.job_id)
        work(world.ev)
    assert_in_step(world.ev, {"1": "giraffe"})


@pytest.mark.parametrize("live", [True, False], ids=["update", "new"])
def test_enqueueing_records_anew_never_drops_a_waiting_box(world: World, live: bool) -> None:
    if live:
        world.ev.add(KIND, "zebra", id="1")
        work(world.ev)
    world.ev.add(KIND, "giraffe", id="1", boxed=True)
    job = job_of(world.ev, "1")
    world.ev.store.changes.reopen(job.version, [job.record], forget=False)
    work(world.ev)
    assert_in_step(world.ev, {"1": "giraffe"})


def test_a_box_without_an_embedder_is_refused_and_nothing_is_written(world: World) -> None:
    noop = world.without_embedder()
    with pytest.raises(InvalidArgument, match="boxed"):
        noop.add(KIND, "alpha", id="1", boxed=True)
    with pytest.raises(InvalidArgument, match="boxed"):
        list(noop.add_many(KIND, [{"id": "1", "text": "alpha", "boxed": True}]))
    assert noop.queue.jobs() == []


def test_a_stale_box_is_not_accepted(world: World) -> None:
    world.ev.add(KIND, "five", id="1", version=5, boxed=True)
    assert not world.ev.add(KIND, "four", id="1", version=4, boxed=True).accepted
    assert not world.ev.add(KIND, "four", id="1", version=4).accepted
    work(world.ev)
    assert_in_step(world.ev, {"1": "five"})
    assert not world.ev.add(KIND, "five again", id="1", version=5).accepted


def test_a_change_of_what_was_read_is_refused_while_a_newer_box_waits(world: World) -> None:
    world.ev.add(KIND, "old", id="1", metadata={"n": 1})
    work(world.ev)
    read = world.ev.get(KIND, "1")
    assert read is not None
    box(world, "new")
    assert not world.ev.add(KIND, "other", id="1", if_seq=read.seq).accepted
    assert not world.ev.delete(KIND, "1", if_seq=read.seq).accepted
    work(world.ev)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "new"
    assert world.ev.delete(KIND, "1", if_seq=record.seq).accepted


def test_records_that_fit_a_filter_are_deleted_with_their_boxes(world: World) -> None:
    world.ev.add(KIND, "old", id="1", metadata={"n": 1})
    work(world.ev)
    box(world, "new")
    assert world.ev.delete_where({"n": 1}, KIND) == 1
    work(world.ev)
    assert_in_step(world.ev, {})
