"""A worker stops answering, loses its lease, and comes back."""

import pytest

from evervec import Evervec, LeaseLost
from support.fault_checks import assert_true_to, freeze, open_store, outcomes, settle
from support.places import Place, contents, query
from support.processes import Start, until

LEASE = {"lease_seconds": 0.4}
FIRST, SECOND = "the first version, of lemons", "the second version, of oranges"
LIVE_POINTS = "select count(*) from evervec_points where vector is not null"


@pytest.mark.parametrize("text", [FIRST, SECOND], ids=["unchanged", "updated"])
def test_a_zombie_cannot_finish_what_another_finished(
    ev: Evervec, path: Place, start: Start, text: str
) -> None:
    """SIGSTOP longer than the lease while the new owner runs, then SIGCONT."""
    ev.add("note", FIRST, id="a")
    zombie = start("work", path, pause={"embedding": "first"}, settings=LEASE)
    zombie.at("embedding", "first")
    freeze(zombie, path)
    ev.add("note", text, id="a")
    settle(ev)
    assert_true_to(ev, path, {"a": text})
    before = contents(path)

    zombie.thaw()
    zombie.go("embedding first")
    assert zombie.at("finished")["held"] == [False]
    assert contents(path) == before
    assert_true_to(ev, path, {"a": text})


def test_a_zombie_cannot_finish_while_the_new_owner_works(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The zombie is back before the new owner is done."""
    ev.add("note", FIRST, id="a")
    zombie = start("work", path, pause={"embedding": ""}, settings=LEASE)
    zombie.at("embedding")
    freeze(zombie, path)
    owner = start("work", path, pause={"embedding": "second"})
    ev.add("note", SECOND, id="a")
    owner.at("embedding", "second")

    zombie.thaw()
    zombie.go("embedding")
    assert zombie.at("finished")["held"] == [False]
    assert query(path, "select * from evervec_points") == []
    owner.go("embedding second")
    assert owner.at("finished")["held"] == [True]
    assert_true_to(ev, path, {"a": SECOND})
    assert outcomes(ev, "a") == ["crashed", "done"]


def test_a_zombie_is_told_that_its_lease_is_lost_whatever_it_tries(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Its renew, finish, fail and release all raise `LeaseLost`, and change nothing."""
    ev.add("note", FIRST, id="a")
    zombie = start("hold", path, pause={"holding": ""}, settings=LEASE)
    zombie.at("holding")
    freeze(zombie, path)
    until(ev.queue.recover_stuck, "the lease to run out")
    job = ev.queue.claim(1)[0]
    before = contents(path)

    zombie.thaw()
    zombie.go("holding")
    tried = zombie.at("tried")["outcomes"]
    assert tried == dict.fromkeys(("renew", "finish", "fail", "release"), "LeaseLost")
    assert contents(path) == before
    ev.queue.release(job)
    settle(ev)
    assert_true_to(ev, path, {"a": FIRST})


def test_a_zombie_that_writes_an_index_apart_cannot_replace_the_newer_version(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Frozen between its last look at the lease and its write to the index."""
    ev.add("note", FIRST, id="a")
    zombie = start("work", path, pause={"applying": ""}, settings=LEASE, index_apart=True)
    zombie.at("applying")
    freeze(zombie, path)
    ev.add("note", SECOND, id="a")
    settle(ev)
    before = contents(path)["points"]

    zombie.thaw()
    zombie.go("applying")
    assert zombie.at("finished")["held"] == [False]
    assert contents(path)["points"] == before
    zombie.end("applying")
    assert zombie.exit_code() == 0
    settle(ev)  # it marked the record for another pass
    assert_true_to(ev, path, {"a": SECOND})


@pytest.mark.parametrize("apart", [False, True], ids=["same file", "index apart"])
def test_a_zombie_cannot_bring_back_a_deleted_record(
    ev: Evervec, path: Place, start: Start, apart: bool
) -> None:
    """The record was deleted, and its points are gone, before the zombie comes back."""
    ev.add("note", FIRST, id="a")
    point = "applying" if apart else "embedding"
    zombie = start("work", path, pause={point: ""}, settings=LEASE, index_apart=apart)
    zombie.at(point)
    freeze(zombie, path)
    ev.delete("note", "a")
    settle(ev)
    assert_true_to(ev, path, {})

    zombie.thaw()
    zombie.go(point)
    assert zombie.at("finished")["held"] == [False]
    assert ev.get("note", "a") is None
    assert ev.search(FIRST) == []
    assert query(path, LIVE_POINTS) == [(0,)]
    zombie.end(point)
    assert zombie.exit_code() == 0
    settle(ev)
    assert_true_to(ev, path, {})


def test_a_record_deleted_in_the_middle_of_its_embedding_stays_deleted(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The same with no lease lost: the delete lands while the job is processed."""
    ev.add("note", FIRST, id="a")
    worker = start("work", path, pause={"embedding": ""})
    worker.at("embedding")
    ev.delete("note", "a")
    worker.go("embedding")
    worker.at("finished")
    assert query(path, LIVE_POINTS) == [(0,)]
    until(lambda: ev.queue.stats().done == 1, "the deletion to be done")
    assert_true_to(ev, path, {})


def test_a_heartbeat_cannot_revive_a_lost_lease(ev: Evervec, path: Place) -> None:
    """Whoever took it, and however the job ended, the old token renews nothing."""
    ev.add("note", FIRST, id="a", max_attempts=100)
    with open_store(path, lease_seconds=0.05) as other:
        for end in ("recovered", "claimed again", "released", "failed", "finished"):
            zombie = other.queue.claim(1)[0]
            if end == "released":
                other.queue.release(zombie)
            elif end == "failed":
                other.queue.fail(zombie, "no good")
                ev.add("note", f"{FIRST} {end}", id="a")  # due at once
            elif end == "finished":
                other.queue.finish(zombie)
            else:
                until(ev.queue.recover_stuck, "the lease to run out")
            owner = ev.queue.claim(1)[0] if end == "claimed again" else None
            before = contents(path)
            with pytest.raises(LeaseLost):
                other.queue.renew(zombie)
            assert other.queue.renew_many([zombie]) == [False]
            assert contents(path) == before
            if owner:
                ev.queue.release(owner)


def test_a_heartbeat_that_comes_back_leaves_the_new_lease_alone(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The zombie's heartbeat thread goes on while its provider call hangs."""
    ev.add("note", FIRST, id="a")
    zombie = start("work", path, pause={"embedding": ""}, settings=LEASE)
    zombie.at("embedding")
    freeze(zombie, path)
    until(ev.queue.recover_stuck, "the lease to run out")
    owner = ev.queue.claim(1)[0]
    zombie.thaw()
    until(lambda: zombie.at("renewed")["held"] == [False], "a heartbeat after the thaw")
    job = ev.queue.get(owner.job_id)
    assert job is not None
    assert (job.token, job.lease_expires_at) == (owner.token, owner.lease_expires_at)
    ev.queue.release(owner)
    settle(ev)
    assert_true_to(ev, path, {"a": FIRST})
