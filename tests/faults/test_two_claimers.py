"""Two claimers, one row."""

import threading
from collections.abc import Callable

import pytest

from evervec import Evervec, Job
from support.fault_checks import assert_true_to, open_store, settle
from support.places import Place
from support.processes import Start


def all_at_once(actions: list[Callable[[], list[Job]]]) -> list[list[Job]]:
    """Run each in a thread of its own, from the same moment on."""
    barrier = threading.Barrier(len(actions))
    results: list[list[Job]] = [[] for _ in actions]
    errors: list[BaseException] = []

    def run(place: int) -> None:
        try:
            barrier.wait()
            results[place] = actions[place]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    return results


@pytest.mark.parametrize("apart", [False, True], ids=["one opening", "an opening each"])
def test_of_threads_that_claim_one_row_exactly_one_wins(
    ev: Evervec, path: Place, apart: bool
) -> None:
    """Four threads, one job, many times over."""
    ticket = ev.add("note", "the only note", id="a")
    others = [open_store(path) if apart else ev for _ in range(4)]
    tokens = set()
    for _ in range(40):
        claims = all_at_once([lambda e=e: e.queue.claim(1) for e in others])  # type: ignore[misc]
        winners = [jobs for jobs in claims if jobs]
        assert [[job.job_id for job in jobs] for jobs in winners] == [[ticket.job_id]]
        tokens.add(winners[0][0].token)
        ev.queue.release(winners[0][0])
    assert len(tokens) == 40
    if apart:
        for other in others:
            other.close()


def test_of_processes_that_saw_one_row_exactly_one_wins(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Both have seen that the job is due before either asks for the lock to claim it."""
    claimers = [start("claim", path, pause={"ready": "", "writing": ""}) for _ in range(2)]
    for turn in range(10):
        ticket = ev.add("note", f"version {turn}", id="a")
        for claimer in claimers:
            claimer.at("ready")
            claimer.go("ready")
        for claimer in claimers:
            claimer.at("writing")
        for claimer in claimers:
            claimer.go("writing")
        claims = [claimer.at("claimed")["jobs"] for claimer in claimers]
        assert sorted(claims) == [[], [ticket.job_id]]
        job = ev.queue.get(ticket.job_id)
        assert job is not None
        ev.queue.finish(job)


def test_processes_that_empty_a_queue_together_never_share_a_job(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Two hundred jobs, three processes, seven at a time: each job goes to one of them."""
    notes = {str(n): f"note {n} of the big pile {n}" for n in range(200)}
    list(ev.add_many("note", ({"id": id, "text": text} for id, text in notes.items())))
    claimers = [start("claim", path, pause={"ready": ""}, count=7) for _ in range(3)]
    claimed: list[int] = []
    tokens: list[str] = []
    while True:
        for claimer in claimers:
            claimer.at("ready")
        for claimer in claimers:
            claimer.go("ready")
        round_ = [claimer.at("claimed") for claimer in claimers]
        for said in round_:
            claimed += said["jobs"]
            tokens += set(said["tokens"])
        if not any(said["jobs"] for said in round_):
            break
    assert len(claimed) == len(set(claimed)) == len(notes)
    assert len(tokens) == len(set(tokens))
    ev.queue.release_many(ev.queue.jobs(status="processing", limit=1000))
    settle(ev)
    assert_true_to(ev, path, notes)
