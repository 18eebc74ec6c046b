"""The way of a change: saved, claimed, embedded, searchable, attempt by attempt."""

from evervec import Evervec, TimelineEvent
from support.world import KIND, START, World, claim_one, work


def events(ev: Evervec, id: str = "1") -> list[TimelineEvent]:
    job = ev.queue.status(KIND, id)
    assert job is not None
    return ev.queue.timeline(job.job_id)


def names(ev: Evervec) -> list[str]:
    return [event.what for event in events(ev)]


def test_a_change_is_followed_from_its_save_to_the_index(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    assert names(world.ev) == ["saved"]
    world.clock.move(2)
    work(world.ev)
    saved, claimed, embedded, searchable = events(world.ev)
    assert [e.what for e in (saved, claimed, embedded, searchable)] == [
        "saved", "claimed", "embedded", "searchable",
    ]  # fmt: skip
    assert saved.at.timestamp() == START
    assert (saved.seconds, claimed.seconds) == (None, 2.0)
    assert claimed.at <= embedded.at <= searchable.at
    assert (claimed.attempt, searchable.attempt) == (1, 1)
    assert {e.worker for e in (claimed, embedded, searchable)} == {world.ev.queue.worker}
    (attempt,) = world.ev.queue.history(KIND, "1")
    assert attempt.embedded_at is not None
    assert attempt.embedded_at <= embedded.at


def test_failed_attempts_are_on_the_way(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    world.ev.queue.fail(claim_one(world.ev), "not now")
    assert names(world.ev) == ["saved", "claimed", "retried", "due"]
    assert events(world.ev)[2].error == "not now"
    world.clock.move(3600)
    job = claim_one(world.ev)
    assert names(world.ev) == ["saved", "claimed", "retried", "claimed"]
    assert events(world.ev)[-1].attempt == 2
    world.ev.queue.fail(job, "never", permanent=True)
    assert names(world.ev) == ["saved", "claimed", "retried", "claimed", "failed"]
    assert events(world.ev)[-1].error == "never"


def test_a_dead_worker_is_on_the_way(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    claim_one(world.ev)
    world.clock.move(world.ev.settings.lease_seconds + 1)
    world.ev.queue.recover_stuck()
    assert names(world.ev)[:3] == ["saved", "claimed", "crashed"]


def test_a_later_change_has_its_own_way(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    work(world.ev)
    world.clock.move(100)
    world.ev.add(KIND, "another text", id="1")
    assert names(world.ev) == ["saved"]
    assert events(world.ev)[0].at.timestamp() == START + 100
    work(world.ev)
    assert names(world.ev) == ["saved", "claimed", "embedded", "searchable"]
    world.clock.move(100)
    world.ev.delete(KIND, "1")
    work(world.ev)
    assert names(world.ev) == ["saved", "claimed", "removed"]
    assert len(world.ev.queue.history(KIND, "1")) == 3


def test_a_change_without_new_chunks_was_not_embedded(world: World) -> None:
    world.ev.add(KIND, "text", id="1")
    work(world.ev)
    world.clock.move(10)
    world.ev.add(KIND, "text", id="1", metadata={"a": 1})
    work(world.ev)
    assert names(world.ev) == ["saved", "claimed", "searchable"]


def test_other_tenants_and_unknown_jobs_have_no_timeline(world: World) -> None:
    job_id = world.ev.add(KIND, "text", id="1").job_id
    assert world.ev.of("other").queue.timeline(job_id) == []
    assert world.ev.queue.timeline(1 << 40) == []
