"""An embedder that leaves the heartbeat thread no time."""

from evervec import Evervec, Status
from support.fault_checks import assert_true_to, outcomes, settle
from support.places import Place
from support.processes import Start, until

NOTES = {str(n): f"note {n} about the mill {n} and the river {n}" for n in range(3)}


def test_a_lease_is_renewed_while_pure_python_burns_every_processor(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Three calls compute for longer than the lease; nobody can take the jobs meanwhile, and
    each is done once."""
    for id, text in NOTES.items():
        ev.add("note", text, id=id)
    worker = start("work", path, settings={"lease_seconds": 2.0}, max_batch=1, burn_seconds=2.5)
    worker.at("embedding")

    def finished() -> bool:
        assert ev.queue.recover_stuck() == 0, "a lease was not renewed in time"
        assert ev.queue.claim(1) == []
        return ev.queue.stats().done == len(NOTES)

    until(finished, "the jobs to be done")
    worker.terminate()
    said = worker.rest()
    assert sum(point["at"] == "embedding" for point in said) == len(NOTES)
    assert sum(point["at"] == "renewed" for point in said) >= 2
    assert_true_to(ev, path, NOTES)
    for id in NOTES:
        assert outcomes(ev, id) == ["done"]


def test_a_worker_does_not_take_its_own_job_for_a_dead_ones(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Its heartbeat is starved until the lease has run out, but nobody else took the job over:
    when its call ends it finishes the job, rather than reap it as a crash of its own."""
    ticket = ev.add("note", NOTES["0"], id="0")
    worker = start(
        "work",
        path,
        pause={"embedding": "", "renewed": "evervec-lease"},
        settings={"lease_seconds": 0.4},
    )
    worker.at("renewed")  # once, and from now on no more
    job = ev.queue.get(ticket.job_id)
    assert job is not None
    assert job.lease_expires_at is not None
    expires = job.lease_expires_at.timestamp()
    until(lambda: ev.store.now() > expires, "the lease to run out")
    worker.go("embedding")
    assert worker.at("finished")["held"] == [True]
    assert outcomes(ev, "0") == ["done"]
    assert_true_to(ev, path, {"0": NOTES["0"]})


def test_a_worker_alone_gets_its_work_done_though_calls_keep_the_interpreter(
    ev: Evervec, path: Place, start: Start
) -> None:
    """A call in C that no thread can interrupt, longer than the lease: with nobody to take the
    job over there is no reason to lose it, and it must not end as a dead letter."""
    ev.add("note", NOTES["0"], id="0")
    worker = start("work", path, settings={"lease_seconds": 0.3}, clutch_seconds=0.6)

    def ended() -> bool:
        job = ev.queue.status("note", "0")
        assert job is not None
        assert job.status is not Status.FAILED, job.error
        return job.status is Status.DONE

    until(ended, "the job to be done")
    worker.terminate()
    assert worker.exit_code() == 0
    assert_true_to(ev, path, {"0": NOTES["0"]})


def test_a_lease_lost_to_another_process_in_an_endless_call_is_lost_cleanly(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The same with others there to take over: whoever finishes, the index holds each record
    once."""
    for id, text in NOTES.items():
        ev.add("note", text, id=id, max_attempts=100)
    settings = {"lease_seconds": 0.3, "batch_size": 1}
    slow = start("work", path, settings=settings, max_batch=1, clutch_seconds=0.6)
    slow.at("embedding")
    quick = start("work", path, settings=settings)
    until(lambda: len(ev.store.workers.all()) == 2, "both to work")
    until(lambda: ev.queue.stats().done == len(NOTES), "the jobs to be done")
    slow.terminate()
    quick.terminate()
    assert slow.exit_code() == quick.exit_code() == 0
    settle(ev)
    assert_true_to(ev, path, NOTES)
    for id in NOTES:
        assert outcomes(ev, id).count("done") == 1
