"""Writes into an index: fenced, reported where they could not be done, and done again."""

from typing import Any

import pytest

from evervec import Status
from evervec.stores.values import Applied
from support.sabotage import saboteur
from support.vectors import change
from support.world import DAY, KIND, World, assert_in_step, held, job_of, paragraph, step, work

pytestmark = pytest.mark.every_pair

RECORD = 1001
SEQ = 10**6


def version_of(world: World) -> int:
    return world.ev.store.versions.collections()[0].version


def number_of(world: World, id: str = "1") -> int:
    (found,) = [
        e for e in world.ev.store.records.expected(None, version_of(world), 0, 100) if e.id == id
    ]
    return found.record


@pytest.fixture
def version(world: World) -> int:
    """A collection that serves."""
    world.ev.add(KIND, "alpha", id="0")
    work(world.ev)
    return version_of(world)


# what an index reports
def test_an_index_reports_kept_chunks_that_it_does_not_hold(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, SEQ, ["a", "b"])])
    whole = index.apply([change(version, RECORD, SEQ + 1, ["c"], kept=["a"])])
    assert whole == Applied()
    short = index.apply(
        [
            change(version, RECORD, SEQ + 2, ["d"], kept=["a", "b"]),
            change(version, RECORD + 1, SEQ + 2, kept=["a"]),
            change(version, RECORD + 2, SEQ + 2, ["a"]),
        ]
    )
    assert short == Applied({(version, RECORD), (version, RECORD + 1)})


def test_an_index_reports_chunks_of_a_removed_record_as_missing(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, SEQ, ["a"])])
    index.apply([change(version, RECORD, SEQ + 1)])
    assert index.apply([change(version, RECORD, SEQ + 2, kept=["a"])]) == Applied(
        {(version, RECORD)}
    )


def test_an_index_reports_what_it_holds_in_a_newer_state(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, SEQ + 5, ["a"]), change(version, RECORD + 1, SEQ + 7)])
    late = [change(version, RECORD + n, SEQ, ["b"]) for n in range(3)]
    newer = {(version, RECORD): SEQ + 5, (version, RECORD + 1): SEQ + 7}
    assert index.apply(late) == Applied(newer=newer)


# what becomes of it
def test_a_record_whose_points_were_lost_is_embedded_whole(world: World) -> None:
    first, second = paragraph("zebra"), paragraph("giraffe")
    world.ev.add(KIND, f"{first}\n\n{second}", id="1")
    world.ev.add(KIND, "beside it", id="2")
    work(world.ev)
    saboteur(world, version_of(world)).delete(number_of(world))
    changed = f"{first}\n\n{paragraph('horse')}"
    world.ev.add(KIND, changed, id="1")
    world.ev.add(KIND, "beside it too", id="2")
    written = step(world.ev, world.ev.pipeline.claim(10))
    if world.index_name != "lancedb":  # its writers undo what others did outside of a turn
        assert (written.succeeded, written.lost) == (1, 1)
        assert job_of(world.ev, "1").attempts == 0
        assert step(world.ev, world.ev.pipeline.claim(10)).succeeded == 1
    work(world.ev)
    assert_in_step(world.ev, {"1": changed, "2": "beside it too"})


def test_a_store_that_is_behind_its_index_gets_past_it(apart_world: World) -> None:
    """As after it was put back from a backup."""
    world = apart_world
    world.ev.add(KIND, "zebra", id="1")
    world.ev.add(KIND, "lion", id="2")
    work(world.ev)
    number = number_of(world)
    ahead = 10**7
    world.ev.index.apply([change(version_of(world), number, ahead, ["a", "later", "state"])])
    world.ev.index.apply([change(version_of(world), number_of(world, "2"), ahead + 1)])
    world.ev.add(KIND, "giraffe", id="1")
    world.ev.add(KIND, "tiger", id="2")
    ticket = world.ev.add(KIND, "beside them", id="3")
    assert work(world.ev).succeeded == 3
    assert_in_step(world.ev, {"1": "giraffe", "2": "tiger", "3": "beside them"})
    assert ticket.seq < ahead < world.ev.add(KIND, "more", id="4").seq


def test_an_index_with_impossible_numbers_stops_one_record_and_says_so(apart_world: World) -> None:
    world = apart_world
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.index.apply([change(version_of(world), number_of(world), (1 << 62) + 5, ["odd"])])
    world.ev.add(KIND, "giraffe", id="1")
    world.ev.add(KIND, "beside it", id="2")
    written = work(world.ev)
    assert (written.succeeded, written.lost) == (1, 1)
    job = job_of(world.ev, "1")
    assert job.status is Status.FAILED
    assert "verify --repair" in (job.error or "")
    world.ev.verify(repair=True)
    world.ev.queue.retry_failed()
    work(world.ev)
    assert_in_step(world.ev, {"1": "giraffe", "2": "beside it"})


def test_a_worker_that_slept_for_weeks_brings_no_forgotten_record_back(apart_world: World) -> None:
    world = apart_world
    ev, sleeper = world.ev, world.tenant("default")
    ev.add(KIND, "zebra", id="1")
    work(ev)
    ev.add(KIND, "giraffe", id="1")
    (batch, _) = sleeper.pipeline.prepare(sleeper.pipeline.claim(1))
    sleeper.pipeline.embed(batch)
    apply = ev.index.apply

    def asleep(changes: Any, conn: Any = None) -> Applied | None:
        ev.index.apply = apply  # type: ignore[method-assign]
        world.clock.move(100)
        ev.queue.recover_stuck()
        ev.delete(KIND, "1")
        work(ev)
        world.clock.move(30 * DAY)
        ev._housekeeping.sweep()
        assert ev.store.records.expected(None, version_of(world), 0, 10) == []
        return apply(changes, conn)

    ev.index.apply = asleep  # type: ignore[method-assign]
    sleeper.pipeline.write(batch)
    assert held(ev) == {}
    assert ev.verify().clean


# fences
def test_each_holder_of_a_job_writes_with_a_larger_number(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    jobs = world.ev.queue.claim(1)
    first, good = world.ev.store.leases.fence(jobs, 60)
    assert good == [True]
    again, _ = world.ev.store.leases.fence(jobs, 60)
    world.clock.move(100)
    world.ev.queue.recover_stuck()
    taken = world.ev.queue.claim(1)
    assert world.ev.store.leases.fence(jobs, 60)[1] == [False]
    second, good = world.ev.store.leases.fence(taken, 60)
    assert good == [True]
    assert jobs[0].seq < first < again < second


def test_a_fence_renews_the_lease(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    jobs = world.ev.queue.claim(1)
    world.clock.move(50)
    world.ev.store.leases.fence(jobs, 60)
    world.clock.move(50)
    assert world.ev.queue.recover_stuck() == 0
    world.clock.move(50)
    assert world.ev.queue.recover_stuck() == 1


def test_a_record_is_in_doubt_from_its_fence_to_its_finish(apart_world: World) -> None:
    world = apart_world
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.store.changes.reopen(version_of(world), [number_of(world)], forget=False)
    (batch, _) = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    assert not batch.texts  # its chunks are known to be there
    world.ev.store.leases.fence(batch.jobs, 60)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert not record.embedded
    world.clock.move(100)
    world.ev.queue.recover_stuck()
    (batch, _) = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    assert batch.texts == ["zebra"]
    world.ev.pipeline.embed(batch)
    world.ev.pipeline.write(batch)
    assert_in_step(world.ev, {"1": "zebra"})
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.embedded


def test_a_fence_is_on_disk_before_the_index_sees_it(apart_world: World) -> None:
    """A power cut takes back unsynced commits of the store, and nothing of the index."""
    world = apart_world
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    synced: list[bool] = []
    writing = world.ev.store.db.writing  # type: ignore[attr-defined]

    def watched(*, durable: bool, conn: Any = None) -> Any:
        synced.append(durable)
        return writing(durable=durable, conn=conn)

    world.ev.store.changes.reopen(version_of(world), [number_of(world)], forget=False)
    (batch, _) = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    apply, seen = world.ev.index.apply, []

    def look(changes: Any, conn: Any = None) -> Applied | None:
        seen.append(synced[-1])
        return apply(changes, conn)

    world.ev.store.db.writing = watched  # type: ignore[attr-defined]
    world.ev.index.apply = look  # type: ignore[method-assign]
    world.ev.pipeline.write(batch)
    assert seen == [True]
    assert synced[-1], "a finish that is lost would leave the job leased, and the entry in doubt"


def test_what_was_deleted_and_added_again_while_a_worker_wrote_is_there(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    (batch, _) = world.ev.pipeline.prepare(world.ev.pipeline.claim(1))
    world.ev.add(KIND, "zebra", id="1")
    world.ev.pipeline.write(batch)
    work(world.ev)
    assert_in_step(world.ev, {"1": "zebra"})
