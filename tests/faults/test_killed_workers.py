"""A worker is killed while it embeds, while it writes, and right after."""

import pytest

from evervec import Evervec, Status
from support.fault_checks import assert_true_to, outcomes, settle
from support.places import Place, contents, query
from support.processes import Start

LEASE = {"lease_seconds": 0.5}
NOTES = {str(n): f"note {n} about harbour {n} and lighthouse {n}" for n in range(5)}
LONG = "\n\n".join(f"Paragraph {n} tells of the island {n}. " * 12 for n in range(8))


def add(ev: Evervec, notes: dict[str, str]) -> None:
    for id, text in notes.items():
        ev.add("note", text, id=id)


def test_a_worker_killed_while_embedding_loses_nothing(
    ev: Evervec, path: Place, start: Start
) -> None:
    """SIGKILL in the middle of embedding: another worker claims after the lease."""
    add(ev, NOTES)
    victim = start("work", path, pause={"embedding": ""}, settings=LEASE)
    victim.at("embedding")
    victim.kill()

    assert ev.queue.stats().processing == len(NOTES)
    assert ev.queue.claim(10) == []  # the lease still holds
    assert query(path, "select * from evervec_points") == []

    heir = start("work", path, settings=LEASE)
    heir.at("finished")
    settle(ev)
    assert_true_to(ev, path, NOTES)
    for id in NOTES:
        assert outcomes(ev, id) == ["crashed", "done"]  # a crash counts as an attempt
        job = ev.queue.status("note", id)
        assert job is not None
        assert (job.status, job.attempts) == (Status.DONE, 2)


def test_a_worker_killed_in_an_update_leaves_the_old_version_to_serve(
    ev: Evervec, path: Place, start: Start
) -> None:
    """SIGKILL in the middle of embedding a new version: the old one is whole until the new is."""
    add(ev, {"a": LONG})
    ev.process_all()
    before = contents(path)["points"]
    newer = LONG.replace("island 3", "volcano 3")
    add(ev, {"a": newer})
    victim = start("work", path, pause={"embedding": "volcano"}, settings=LEASE)
    victim.at("embedding", "volcano")
    victim.kill()

    assert contents(path)["points"] == before
    assert ev.search("Paragraph 3 tells of the island 3.", mode="semantic")[0].id == "a"
    settle(ev)
    assert_true_to(ev, path, {"a": newer})


@pytest.mark.parametrize("point", ["applying", "applied"])
def test_a_worker_killed_after_the_index_write_leaves_one_set_of_chunks(
    ev: Evervec, path: Place, start: Start, point: str
) -> None:
    """SIGKILL after the index write and before the job is finished: the job runs again."""
    notes = {"a": LONG, **NOTES}
    add(ev, notes)
    victim = start("work", path, pause={point: ""}, settings=LEASE)
    victim.at(point)
    victim.kill()

    assert query(path, "select * from evervec_points") == []  # they were one transaction
    assert query(path, "select * from evervec_ledger") == []
    settle(ev)
    assert_true_to(ev, path, notes)
    assert outcomes(ev, "a") == ["crashed", "done"]


def test_a_worker_killed_between_two_transactions_leaves_one_set_of_chunks(
    ev: Evervec, path: Place, start: Start
) -> None:
    """The same where the index is written apart from the store, so that it is ahead of it."""
    notes = {"a": LONG, **NOTES}
    add(ev, notes)
    victim = start("work", path, pause={"applied": ""}, settings=LEASE, index_apart=True)
    victim.at("applied")
    victim.kill()

    assert query(path, "select * from evervec_points") != []
    assert query(path, "select * from evervec_ledger") == []
    settle(ev)
    assert_true_to(ev, path, notes)


def test_a_worker_killed_in_the_write_of_an_update_keeps_the_old_version_whole(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Old chunks go and new ones come in one step, so a kill inside it undoes both."""
    add(ev, {"a": LONG})
    ev.process_all()
    before = contents(path)["points"]
    shorter = LONG[: len(LONG) // 2]
    add(ev, {"a": shorter})
    victim = start("work", path, pause={"applied": ""}, settings=LEASE)
    victim.at("applied")
    victim.kill()

    assert contents(path)["points"] == before
    settle(ev)
    assert_true_to(ev, path, {"a": shorter})


def test_a_worker_killed_in_a_delete_still_ends_with_the_record_gone(
    ev: Evervec, path: Place, start: Start
) -> None:
    """SIGKILL while the points of a deleted record are taken out."""
    add(ev, NOTES)
    ev.process_all()
    ev.delete("note", "0")
    victim = start("work", path, pause={"applied": "0"}, settings=LEASE)
    victim.at("applied", "0")
    victim.kill()

    assert [hit.id for hit in ev.search(NOTES["0"], k=10) if hit.id == "0"] == []
    settle(ev)
    assert_true_to(ev, path, {id: text for id, text in NOTES.items() if id != "0"})


def test_a_finish_whose_answer_was_lost_is_not_done_again(
    ev: Evervec, path: Place, start: Start
) -> None:
    """SIGKILL after COMMIT and before the client saw it: the retried finish is a no-op."""
    add(ev, NOTES)
    victim = start("work", path, pause={"finished": ""}, settings=LEASE)
    victim.at("finished")
    victim.kill()

    assert_true_to(ev, path, NOTES)  # nothing is left to do
    before = contents(path)
    for id in NOTES:
        job = ev.queue.status("note", id)
        assert job is not None
        ev.queue.finish(job)  # with the token of the victim: taken, not refused
    assert ev.queue.recover_stuck() == 0
    assert ev.process_all().processed == 0
    assert contents(path) == before


def test_the_same_finish_given_twice_changes_nothing(ev: Evervec, path: Place) -> None:
    """The client retries with the very same job, points and token."""
    add(ev, {"a": LONG})
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    ev.pipeline.embed(batch)
    assert ev.pipeline.write(batch).succeeded == 1
    before = contents(path)
    again = ev.pipeline.write(batch)
    assert (again.succeeded, again.lost) == (1, 0)
    assert contents(path) == before
    assert_true_to(ev, path, {"a": LONG})


def test_a_retried_finish_does_not_undo_a_change_that_came_since(ev: Evervec, path: Place) -> None:
    """Between the lost answer and the retry, the record changed and somebody claimed it."""
    add(ev, {"a": "the first version"})
    batch, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    ev.pipeline.embed(batch)
    ev.pipeline.write(batch)
    add(ev, {"a": "the second version"})
    ev.pipeline.write(batch)
    assert ev.queue.stats().pending == 1
    later, _ = ev.pipeline.prepare(ev.pipeline.claim(1))
    before = contents(path)
    ev.pipeline.write(batch)  # another holds it now
    assert contents(path) == before
    ev.pipeline.embed(later)
    assert ev.pipeline.write(later).succeeded == 1
    assert_true_to(ev, path, {"a": "the second version"})
