"""An expired lease is taken back while its holder is finishing."""

import threading

import pytest

from evervec import Evervec, Status
from support.fault_checks import assert_true_to, freeze, open_store, outcomes, settle
from support.places import Place, contents, kind_of
from support.processes import Start, until

TEXT = "a note about weaving"
LEASE = {"lease_seconds": 0.2}


def test_a_reaper_that_comes_second_does_not_reset_finished_work(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The lease has run out and the reaper has seen it, but the finisher has the write lock."""
    ticket = ev.add("note", TEXT, id="a")
    reaper = start("recover", path, pause={"ready": "", "writing": ""})
    reaper.at("ready")
    finisher = start("work", path, pause={"applied": ""}, settings=LEASE)
    finisher.at("applied")
    job = ev.queue.get(ticket.job_id)
    assert job is not None
    assert job.lease_expires_at is not None
    expires = job.lease_expires_at.timestamp()
    until(lambda: ev.store.now() > expires, "the lease to run out")
    reaper.go("ready")
    reaper.at("writing")  # it found the job, and now wants the lock to take it back
    reaper.go("writing", times=10)

    finisher.go("applied")
    assert finisher.at("finished")["held"] == [True]
    assert reaper.at("recovered")["count"] == 0
    assert_true_to(ev, path, {"a": TEXT})
    assert outcomes(ev, "a") == ["done"]


def test_a_finisher_that_comes_second_has_lost_its_lease(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The reaper was first: the finisher writes nothing, and the job is done by the next."""
    ev.add("note", TEXT, id="a")
    finisher = start("work", path, pause={"embedding": ""}, settings=LEASE)
    finisher.at("embedding")
    freeze(finisher, path)
    until(ev.queue.recover_stuck, "the lease to run out")
    owner, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    finisher.thaw()
    before = contents(path)
    finisher.go("embedding")
    assert finisher.at("finished")["held"] == [False]
    assert contents(path) == before
    ev.pipeline.embed(owner)
    assert ev.pipeline.write(owner).succeeded == 1
    assert_true_to(ev, path, {"a": TEXT})
    assert outcomes(ev, "a") == ["crashed", "done"]


@pytest.mark.parametrize("times", [1, pytest.param(5, marks=pytest.mark.long)])
def test_reapers_and_finishers_at_full_tilt_never_reset_finished_work(
    ev: Evervec, path: Place, times: int
) -> None:
    """With leases that are always about to run out, each job is finished exactly once."""
    count = times * (20 if kind_of(path) == "duckdb" else 100)  # it is slow at single jobs
    list(ev.add_many("note", ({"id": n, "text": f"note {n}"} for n in range(count))))
    done: list[int] = []
    over = threading.Event()

    def reap() -> None:
        with open_store(path) as reaper:
            while not over.is_set():
                reaper.queue.recover_stuck()

    def work() -> None:
        with open_store(path, lease_seconds=0.05, max_attempts=1000) as worker:
            while not over.is_set():
                jobs = worker.queue.claim(20)
                done.extend(j.job_id for j in jobs if worker.queue.finish_many([j]) == [True])

    for n in range(count):  # their attempts must not run out
        ev.add("note", f"note {n}, again", id=n, max_attempts=100_000)
    threads = [threading.Thread(target=target) for target in (reap, work, work, reap)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: ev.queue.stats().done == count, "all jobs to be done")
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert sorted(done) == sorted(set(done)), "a job was finished twice"
    assert len(done) == count
    stats = ev.queue.stats()
    assert (stats.pending, stats.processing, stats.failed, stats.done) == (0, 0, 0, count)
    assert all(outcomes(ev, str(n))[-1] == "done" for n in range(count))
    assert all(outcomes(ev, str(n)).count("done") == 1 for n in range(count))


def test_taking_back_by_hand_what_is_being_finished_costs_nothing(ev: Evervec, path: Place) -> None:
    """An operator's `recover_stuck(0)` takes jobs from living workers; none is lost or doubled."""
    ev.add("note", TEXT, id="a")
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    ev.pipeline.embed(batch)
    job = ev.queue.status("note", "a")
    assert job is not None
    assert job.status is Status.PROCESSING
    started = job.started_at
    assert started is not None
    until(lambda: ev.store.now() > started.timestamp(), "the clock to move")
    assert ev.queue.recover_stuck(threshold=0) == 1
    assert ev.pipeline.write(batch).lost == 1
    settle(ev)
    assert ev.queue.recover_stuck(threshold=0) == 0
    assert_true_to(ev, path, {"a": TEXT})
