"""Deletes with a version: a change stream can be replayed, in any order and more than once."""

import random
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest

from evervec import Client, InvalidRecord, QuotaExceeded, Status
from evervec.model.usage import Limits
from support.service import Served
from support.world import DAY, KIND, World, assert_in_step, work


def test_only_a_newer_version_deletes(world: World) -> None:
    ev = world.ev
    first = ev.add(KIND, "five", id="1", version=5)
    for stale in (5, 4, -1):
        ticket = ev.delete(KIND, "1", version=stale, wait=0)
        assert (ticket.accepted, ticket.enqueued) == (False, False)
        assert (ticket.seq, ticket.job_id) == (first.seq, first.job_id)
    assert ev.get(KIND, "1") is not None
    gone = ev.delete(KIND, "1", version=6)
    assert gone.accepted
    assert gone.seq > first.seq
    work(ev)
    assert ev.wait(gone, 0).status is Status.DONE
    assert_in_step(ev, {})


def test_a_late_add_of_an_older_version_does_not_bring_the_record_back(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "one", id="1", version=1)
    assert ev.delete(KIND, "1", version=3).accepted
    for late in (1, 2, 3):
        assert not ev.add(KIND, "late", id="1", version=late).accepted
    work(ev)
    assert not ev.add(KIND, "late", id="1", version=3).accepted
    assert not ev.add(KIND, "late", id="1", version=3, boxed=True).accepted
    assert ev.get(KIND, "1") is None
    assert ev.add(KIND, "four", id="1", version=4).accepted
    work(ev)
    assert_in_step(ev, {"1": "four"})


@pytest.mark.parametrize("kind", [KIND, "unseen"])
def test_a_delete_that_comes_first_refuses_the_adds_that_it_overtook(
    world: World, kind: str
) -> None:
    ev = world.ev
    ev.add(KIND, "another", id="0")
    early = ev.delete(kind, "1", version=3, wait=0)
    assert not early.accepted, "there was nothing to delete"
    assert ev.get(kind, "1") is None
    assert ev.count() == ev.usage().records == 1, "what was never there is not counted"
    assert [job.record_id for job in ev.queue.jobs()] == ["0"], "nor is there work to do"
    assert not ev.add(kind, "late", id="1", version=2).accepted
    assert not ev.delete(kind, "1", version=3).accepted
    assert ev.add(kind, "four", id="1", version=4).accepted
    work(ev)
    found = ev.get(kind, "1")
    assert found is not None
    assert found.text == "four"
    assert ev.usage().records == 2
    assert ev.verify().complete


def test_a_delete_of_an_unknown_record_by_its_seq_keeps_no_version(world: World) -> None:
    """It was refused, so it must not refuse what comes later."""
    ev = world.ev
    assert not ev.delete(KIND, "1", version=9, if_seq=5).accepted
    assert ev.add(KIND, "two", id="1", version=2).accepted
    assert not ev.delete(KIND, "2", version=9, if_seq=0).accepted, "there is none, as it asks"
    assert not ev.add(KIND, "two", id="2", version=2).accepted
    work(ev)
    assert_in_step(ev, {"1": "two"})


def test_a_deleted_record_takes_the_version_of_a_later_delete(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "one", id="1", version=1)
    ev.delete(KIND, "1")
    assert not ev.delete(KIND, "1", version=7).accepted, "it was deleted already"
    assert not ev.add(KIND, "late", id="1", version=6).accepted
    assert ev.add(KIND, "eight", id="1", version=8).accepted


def test_a_boxed_record_is_deleted_by_a_newer_version_only(world: World) -> None:
    ev = world.ev
    ev.add(KIND, "boxed", id="1", version=2, boxed=True)
    assert not ev.delete(KIND, "1", version=2).accepted
    assert ev.delete(KIND, "1", version=3).accepted
    work(ev)
    assert_in_step(ev, {})
    assert not ev.add(KIND, "late", id="1", version=2).accepted


@pytest.mark.parametrize("seed", range(4))
def test_a_stream_gives_its_last_state_in_any_order(world: World, seed: int) -> None:
    rng = random.Random(seed)
    stream = [(str(id), version, rng.random() < 0.5) for id in range(6) for version in range(1, 5)]
    last = {id: (version, deleted) for id, version, deleted in stream}
    disordered = rng.sample(stream, len(stream)) + rng.sample(stream, 8)
    for id, version, deleted in disordered:
        if deleted:
            world.ev.delete(KIND, id, version=version)
        else:
            world.ev.add(KIND, f"text {version}", id=id, version=version)
        if rng.random() < 0.2:
            work(world.ev)
    work(world.ev)
    assert_in_step(
        world.ev, {id: f"text {version}" for id, (version, deleted) in last.items() if not deleted}
    )
    assert world.ev.verify().complete


def test_a_delete_in_the_callers_transaction_comes_with_it_or_not_at_all(
    joined_world: World,
) -> None:
    ev = joined_world.ev
    ev.add(KIND, "one", id="1", version=1)
    for end, accepted in (("rollback", True), ("commit", False)):
        with closing(joined_world.connect()) as conn:
            for id in ("1", "2"):
                ev.delete(KIND, id, version=5, conn=conn)
            getattr(conn, end)()
        for id in ("1", "2"):
            assert ev.add(KIND, "two", id=id, version=2).accepted is accepted


def test_the_version_is_kept_as_long_as_the_delete_is(world: World) -> None:
    world.ev.add(KIND, "one", id="1", version=1)
    world.ev.delete(KIND, "1", version=5)
    world.ev.delete(KIND, "2", version=5)
    work(world.ev)
    world.clock.move(DAY)
    assert world.ev.store.jobs.purge_history(world.ev.store.now() - 2 * DAY) == 0
    for id in ("1", "2"):
        assert not world.ev.add(KIND, "late", id=id, version=4).accepted
    world.clock.move(DAY)
    world.ev.queue.purge_done(timedelta(0))
    while world.ev.store.jobs.purge_history(world.ev.store.now() - DAY):
        pass
    for id in ("1", "2"):
        assert world.ev.add(KIND, "late", id=id, version=4).accepted


def test_a_bad_version_is_refused(world: World) -> None:
    bad: Any
    for bad in ("5", 1.5, True, 1 << 63):
        with pytest.raises(InvalidRecord, match="version: must be a whole number"):
            world.ev.delete(KIND, "1", version=bad)


def test_a_delete_of_an_unknown_kind_counts_towards_the_limit_of_kinds(world: World) -> None:
    world.ev.set_limits(Limits(kinds=1))
    world.ev.add(KIND, "one", id="1")
    with pytest.raises(QuotaExceeded):
        world.ev.delete("another", "1", version=5)


def test_over_http_and_with_the_client_it_is_the_same(world: World, served: Served) -> None:
    key = served.key()
    with Client(served.url, key) as client:
        assert not client.delete(KIND, "1", version=3).accepted
        assert not client.add(KIND, "late", id="1", version=2).accepted
        assert client.add(KIND, "four", id="1", version=4).accepted
        assert not client.delete(KIND, "1", version=4).accepted
        assert client.get(KIND, "1") is not None
        assert client.delete(KIND, "1", version=5).accepted
        assert not client.add(KIND, "late", id="1", version=5).accepted
    http = served.http(key)
    answered = http.delete(f"/v1/records/{KIND}/1", params={"version": 5})
    assert (answered.status_code, answered.json()["accepted"]) == (202, False)
    assert http.delete(f"/v1/records/{KIND}/1").status_code == 404
    assert http.delete(f"/v1/records/{KIND}/1", params={"version": "x"}).status_code == 422
    assert http.delete(f"/v1/records/{KIND}/1", params={"version": 1 << 63}).status_code == 422
