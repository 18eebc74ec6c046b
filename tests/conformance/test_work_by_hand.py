"""Working the queue by hand: nothing is finished that nobody has read."""

import pytest

from evervec import InvalidRecord, InvalidTransition, Kind, LeaseLost, Status
from support.world import KIND, World, assert_in_step, job_of, work


def test_a_plain_record_is_finished_with_or_without_its_content(world: World) -> None:
    for id in ("1", "2"):
        world.ev.add(KIND, "alpha beta", id=id, title="T", metadata={"a": 1}, weight=0.5)
    first, second = world.ev.queue.claim(2)
    content = world.ev.queue.content(first)
    assert content is not None
    assert (content.title, content.text, content.metadata, content.weight) == (
        "T", "alpha beta", {"a": 1}, 0.5,
    )  # fmt: skip
    world.ev.queue.finish(first, content)
    world.ev.queue.finish(second)
    assert {job_of(world.ev, id).status for id in ("1", "2")} == {Status.DONE}


def test_a_deleted_record_has_no_content(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    work(world.ev)
    world.ev.delete(KIND, "1")
    (job,) = world.ev.queue.claim(1)
    assert world.ev.queue.content(job) is None
    world.ev.queue.finish(job, None)
    assert job_of(world.ev, "1").status is Status.DONE


def test_a_boxed_record_is_not_finished_unread(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", boxed=True)
    (job,) = world.ev.queue.claim(1)
    with pytest.raises(InvalidTransition, match="holds a boxed record"):
        world.ev.queue.finish(job)
    with pytest.raises(InvalidTransition, match="release it for a worker"):
        world.ev.queue.finish_many([job])
    with pytest.raises(InvalidTransition, match="boxed"):
        world.ev.queue.finish(job, None)
    world.ev.queue.release(job)
    work(world.ev)
    assert_in_step(world.ev, {"1": "alpha"})


def test_a_boxed_record_that_was_read_appears_when_it_is_finished(world: World) -> None:
    world.ev.add(KIND, "zebra", id="1")
    work(world.ev)
    world.ev.add(KIND, "giraffe", id="1", metadata={"a": 1}, boxed=True)
    (job,) = world.ev.queue.claim(1)
    content = world.ev.queue.content(job)
    assert content is not None
    assert (content.text, content.metadata) == ("giraffe", {"a": 1})
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "zebra"
    world.ev.queue.finish(job, content)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert (record.text, record.metadata) == ("giraffe", {"a": 1})
    assert [hit.id for hit in world.ev.search("giraffe", mode="text")] == ["1"]
    # its vectors are whoever's who finished it: evervec's own index finds out and makes them
    assert world.ev.verify(repair=True).found
    work(world.ev)
    assert_in_step(world.ev, {"1": "giraffe"})


def test_a_row_that_is_to_be_loaded_is_not_finished_unread(world: World) -> None:
    rows = {"1": "alpha", "2": None}
    world.ev.register(Kind(KIND, load=lambda id: rows[id]))
    world.ev.queue.enqueue_many(KIND, ["1", "2"])
    jobs = {job.record_id: job for job in world.ev.queue.claim(2)}
    for job in jobs.values():
        with pytest.raises(InvalidTransition, match="must load its record"):
            world.ev.queue.finish(job)
    content = world.ev.queue.content(jobs["1"])
    assert content is not None
    assert content.text == "alpha"
    world.ev.queue.finish(jobs["1"], content)
    assert world.ev.queue.content(jobs["2"]) is None
    world.ev.queue.finish(jobs["2"], None)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "alpha"
    assert world.ev.get(KIND, "2") is None


def test_a_newer_box_is_kept_when_the_older_one_is_finished(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", boxed=True)
    (job,) = world.ev.queue.claim(1)
    content = world.ev.queue.content(job)
    world.ev.add(KIND, "beta", id="1", boxed=True)
    world.ev.queue.finish(job, content)
    record = world.ev.get(KIND, "1")
    assert record is not None
    assert record.text == "alpha"
    work(world.ev)
    assert_in_step(world.ev, {"1": "beta"})


def test_the_content_of_a_cancelled_job_is_refused(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1")
    (job,) = world.ev.queue.claim(1)
    world.ev.queue.release(job)
    world.ev.queue.cancel(job.job_id)
    with pytest.raises(LeaseLost, match=f"job {job.job_id} no longer exists"):
        world.ev.queue.content(job)


def test_a_row_that_no_process_can_load_waits_for_one_that_can(world: World) -> None:
    other = world.tenant("default")  # another process, as it were
    other.register(Kind("stone", load={"7": "basalt"}.get))
    other.queue.enqueue("stone", "7")
    work(world.ev)  # it has no loader, and was told that it needs one
    job = job_of(world.ev, "7", kind="stone")
    assert (job.status, job.attempts, job.error) == (Status.PENDING, 0, None)
    work(other)
    record = world.ev.get("stone", "7")
    assert record is not None
    assert record.text == "basalt"


def test_a_row_that_was_claimed_before_it_was_known_to_need_a_loader_waits(world: World) -> None:
    other = world.tenant("default")  # another process, as it were
    other.register(Kind("stone", load={"7": "basalt"}.get))
    world.ev.add("stone", "granite", id="8")
    work(world.ev)
    claim = world.ev.queue.claim
    other.queue.enqueue("stone", "7", max_attempts=1)
    served = world.ev.store.versions.collections()[0].version
    batch, _ = world.ev.pipeline.prepare(claim(1, versions=[served]))
    world.ev.pipeline.write(batch)
    job = job_of(world.ev, "7", kind="stone")
    assert (job.status, job.attempts) == (Status.PENDING, 0)
    assert "load=" in (job.error or "")
    assert claim(1, versions=[served]) == []  # not at once again
    with pytest.raises(InvalidRecord, match="no loader"):
        world.ev.queue.content(job)
    world.clock.move(60)
    work(other)
    record = world.ev.get("stone", "7")
    assert record is not None
    assert record.text == "basalt"


def test_rows_of_a_kind_that_nobody_loads_are_finished_as_they_are(world: World) -> None:
    """The queue alone, for rows and an index of the caller's own."""
    world.ev.queue.enqueue_many("stone", ["7", "8"])
    first, second = world.ev.queue.claim(2)
    world.ev.queue.finish(first)
    assert world.ev.queue.finish_many([second]) == [True]
    assert {job_of(world.ev, id, kind="stone").status for id in ("7", "8")} == {Status.DONE}
