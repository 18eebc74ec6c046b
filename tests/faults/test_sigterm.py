"""SIGTERM in the middle of a batch."""

from evervec import Evervec
from support.fault_checks import assert_true_to, settle
from support.places import Place, query
from support.processes import Start, until

NOTES = {str(n): f"note {n} about the garden {n} and the wall {n}" for n in range(12)}


def add_all(ev: Evervec) -> None:
    for id, text in NOTES.items():
        ev.add("note", text, id=id)


def test_sigterm_drains_the_batch_and_takes_no_more(ev: Evervec, path: Place, start: Start) -> None:
    """What is claimed is finished; what is not claimed is left for others."""
    add_all(ev)
    worker = start(
        "work",
        path,
        pause={"embedding": ""},
        settings={"batch_size": 4, "concurrency": 1},
        max_batch=4,
    )
    worker.at("embedding")
    until(lambda: ev.queue.stats().processing == 8, "the next batch to be claimed too")
    worker.terminate()
    worker.at("stopping")
    worker.go("embedding", times=10)
    assert worker.exit_code() == 0
    stats = ev.queue.stats()
    assert (stats.done, stats.processing, stats.pending) == (8, 0, len(NOTES) - 8)
    assert "drain timed out" not in worker.log
    settle(ev)
    assert_true_to(ev, path, NOTES)


def test_sigterm_gives_back_what_is_not_done_by_the_deadline(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The provider hangs: the worker ends by itself, and its jobs can be claimed at once."""
    add_all(ev)
    worker = start(
        "work", path, pause={"embedding": ""}, settings={"drain_seconds": 0.3, "lease_seconds": 60}
    )
    worker.at("embedding")
    worker.terminate()
    assert worker.exit_code() == 0
    assert "drain timed out" in worker.log
    _assert_given_back(ev, path)


def test_sigterm_keeps_what_was_embedded_before_the_deadline(
    ev: Evervec, path: Place, start: Start
) -> None:
    """One call of several hangs: the others are written, and only its jobs go back."""
    add_all(ev)
    worker = start(
        "work",
        path,
        pause={"embedding": "garden 3"},
        settings={"drain_seconds": 1.0, "batch_size": 1, "concurrency": 2},
    )
    worker.at("embedding", "garden 3")
    worker.terminate()
    assert worker.exit_code() == 0
    job = ev.queue.status("note", "3")
    assert job is not None
    assert (job.status, job.attempts, job.token) == ("pending", 0, None)
    assert ev.queue.stats().processing == 0
    settle(ev)
    assert_true_to(ev, path, NOTES)


def test_a_second_sigterm_stops_at_once(ev: Evervec, path: Place, start: Start) -> None:
    """It does not wait for the deadline, and nothing is lost."""
    add_all(ev)
    worker = start(
        "work",
        path,
        pause={"embedding": ""},
        settings={"drain_seconds": 3600, "lease_seconds": 3600},
    )
    worker.at("embedding")
    worker.terminate()
    worker.at("stopping")
    assert worker.running
    worker.terminate()
    assert worker.exit_code() == 0
    _assert_given_back(ev, path)


def test_sigterm_ends_an_idle_worker(ev: Evervec, path: Place, start: Start) -> None:
    """With nothing to do there is nothing to wait for."""
    add_all(ev)
    worker = start("work", path, settings={"drain_seconds": 3600, "poll_seconds": 3600})
    worker.at("finished")
    worker.terminate()
    assert worker.exit_code() == 0
    assert_true_to(ev, path, NOTES)


def _assert_given_back(ev: Evervec, path: Place) -> None:
    """All jobs wait as if nobody had claimed them, and are claimed and done right away."""
    stats = ev.queue.stats()
    assert (stats.pending, stats.processing) == (len(NOTES), 0)
    assert query(path, "select distinct attempts, token, lease_expires_at from evervec_jobs") == [
        (0, None, None)
    ]
    jobs = ev.queue.claim(100)
    assert sorted(job.record_id for job in jobs) == sorted(NOTES)
    ev.queue.release_many(jobs)
    settle(ev)
    assert_true_to(ev, path, NOTES)
