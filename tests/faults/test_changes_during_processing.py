"""Changes of one record that meet in the queue."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evervec import Evervec, Kind, Status
from support.fault_checks import assert_true_to, outcomes, settle
from support.places import Place, caller, contents, query, somebody_waits
from support.processes import Start, until

Change = Callable[[Evervec, Any], object]


def enqueue(ev: Evervec, conn: Any) -> object:
    return ev.queue.enqueue("note", "a", conn=conn)


def add(ev: Evervec, conn: Any) -> object:
    return ev.add("note", "the row as it is", id="a", conn=conn)


@pytest.mark.parametrize("change", [enqueue, add])
def test_the_job_exists_though_the_first_of_two_transactions_rolls_back(
    ev: Evervec, path: Place, change: Change
) -> None:
    """Two identical enqueues at once: the second waits for the first, and must not take the
    first's job, which never comes to be, for its own."""
    ev.register(Kind("note", load=lambda id: "the row as it is"))
    first = caller(ev, path)
    change(ev, first)
    asked = threading.Event()
    errors: list[BaseException] = []

    def second() -> None:
        conn = caller(ev, path)
        if hasattr(conn, "set_trace_callback"):
            # the statement is announced before it waits for the lock
            conn.set_trace_callback(lambda sql: asked.set() if "begin" in sql.lower() else None)
        else:
            asked.set()
        try:
            change(ev, conn)
            conn.commit()
        except BaseException as error:
            errors.append(error)
        finally:
            conn.close()

    thread = threading.Thread(target=second)
    thread.start()
    assert asked.wait(30)
    until(lambda: somebody_waits(path), "the second to wait for the first")
    first.rollback()
    first.close()
    thread.join()
    assert errors == []

    job = ev.queue.status("note", "a")
    assert job is not None
    assert (job.status, ev.queue.stats().pending) == (Status.PENDING, 1)
    settle(ev)
    assert_true_to(ev, path, {"a": "the row as it is"})


def test_a_change_that_is_rolled_back_leaves_no_trace(ev: Evervec, path: Place) -> None:
    """Record, job, full text and numbers are all part of the caller's transaction."""
    ev.add("note", "what is there", id="a")
    settle(ev)
    before = contents(path)
    conn = caller(ev, path)
    ev.add("note", "what is never there", id="a", conn=conn)
    ev.add("note", "nor is this", id="b", conn=conn)
    ev.delete("note", "a", conn=conn)
    conn.rollback()
    conn.close()
    assert contents(path) == before
    assert ev.search("never", mode="text") == []
    assert_true_to(ev, path, {"a": "what is there"})


def test_the_same_record_twice_in_one_batch_is_one_job_with_the_later_version(
    ev: Evervec, path: Place
) -> None:
    """Tickets come in order, each with its own seq; one embedding is made, of the last."""
    texts = ["the first", "the other", "the second", "the third"]
    ids = ["a", "b", "a", "a"]
    records = [{"id": id, "text": text} for id, text in zip(ids, texts, strict=True)]
    tickets = list(ev.add_many("note", records))
    assert [ticket.id for ticket in tickets] == ids
    assert [ticket.accepted for ticket in tickets] == [True] * 4
    assert [ticket.is_new for ticket in tickets] == [True, True, False, False]
    seqs = [ticket.seq for ticket in tickets]
    assert seqs == sorted(set(seqs))
    assert len({t.job_id for t in tickets if t.id == "a"}) == 1
    assert ev.queue.stats().pending == 2

    assert ev.process_all().succeeded == 2
    assert_true_to(ev, path, {"a": "the third", "b": "the other"})
    assert outcomes(ev, "a") == ["done"]
    for ticket in tickets:
        assert ev.wait(ticket, timeout=0).status is Status.DONE


def test_the_same_id_twice_in_one_enqueue_is_one_job(ev: Evervec, path: Place) -> None:
    """One result for each input, in order; a bad one in between changes nothing."""
    loaded: list[str] = []

    def load(id: str) -> str:
        loaded.append(id)
        return f"row {id}"

    ev.register(Kind("note", load=load))
    results = ev.queue.enqueue_many("note", ["a", "b", "", "a", "b", "a"])
    assert [result.is_new for result in results] == [True, True, False, False, False, False]
    a, b, bad, *_ = results
    assert [result.job_id for result in results] == [
        a.job_id, b.job_id, None, a.job_id, b.job_id, a.job_id,
    ]  # fmt: skip
    assert bad.error is not None
    assert ev.process_all().succeeded == 2
    assert sorted(loaded) == ["a", "b"]
    assert_true_to(ev, path, {"a": "row a", "b": "row b"})


def test_a_record_added_deleted_and_added_in_one_transaction_is_there_once(
    ev: Evervec, path: Place
) -> None:
    """The last word counts, whatever came before it in the same transaction."""
    ev.add("note", "long ago", id="a")
    settle(ev)
    conn = caller(ev, path)
    ev.add("note", "before", id="a", conn=conn)
    ev.delete("note", "a", conn=conn)
    ev.add("note", "after", id="a", conn=conn)
    ev.add("note", "of no account", id="b", conn=conn)
    ev.delete("note", "b", conn=conn)
    conn.commit()
    conn.close()
    settle(ev)
    assert_true_to(ev, path, {"a": "after"})


def test_an_update_during_processing_is_embedded_too(
    ev: Evervec, path: Place, start: Start
) -> None:
    """Many updates land while the first version is with the provider: one more embedding, of
    the last, and the job starts its attempts anew."""
    ev.add("note", "version 0", id="a")
    worker = start("work", path, pause={"embedding": "version 0"})
    worker.at("embedding", "version 0")
    for n in range(1, 6):
        ticket = ev.add("note", f"version {n}", id="a")
    assert ev.queue.stats().processing == 1
    worker.go("embedding version 0")
    ev.wait(ticket)
    worker.terminate()
    said = [point["about"] for point in worker.rest() if point["at"] == "embedding"]
    assert said == ["version 0", "version 5"]
    assert_true_to(ev, path, {"a": "version 5"})
    assert outcomes(ev, "a") == ["done", "done"]
    job = ev.queue.status("note", "a")
    assert job is not None
    assert job.attempts == 1


def test_an_update_between_embedding_and_writing_is_embedded_too(
    ev: Evervec, path: Place, start: Start
) -> None:
    """It waits for the write lock while the old version is written, and comes right after."""
    ev.add("note", "version 0", id="a")
    worker = start("work", path, pause={"applied": ""})
    worker.at("applied")
    thread = threading.Thread(target=ev.add, args=("note", "version 1"), kwargs={"id": "a"})
    thread.start()
    worker.go("applied", times=10)
    thread.join()
    until(lambda: ev.queue.stats().done == 1, "both versions to be done")
    settle(ev)
    assert_true_to(ev, path, {"a": "version 1"})


def test_an_update_during_the_last_attempt_of_a_failing_version_is_tried(
    ev: Evervec, path: Place
) -> None:
    """The old version fails for good; the new one is not buried with it."""
    ev.add("note", "version 0", id="a", max_attempts=1)
    job = ev.queue.claim(1)[0]
    ev.add("note", "version 1", id="a", max_attempts=1)
    ev.queue.fail(job, "no good", permanent=True)
    assert ev.queue.stats().failed == 0
    settle(ev)
    assert_true_to(ev, path, {"a": "version 1"})


def test_the_old_version_serves_until_the_new_one_is_complete(
    ev: Evervec, path: Place, start: Start
) -> None:
    """While an update is embedded, search by meaning still finds the record."""
    ev.add("note", "about whales and the sea", id="a")
    settle(ev)
    ev.add("note", "about bread and ovens", id="a")
    worker = start("work", path, pause={"embedding": ""})
    worker.at("embedding")
    hit = ev.search("about whales and the sea", mode="semantic")[0]
    assert (hit.id, round(hit.similarity or 0, 3)) == ("a", 1.0)
    assert query(path, "select count(*) from evervec_points where vector is not null") == [(1,)]
    worker.go("embedding")
    worker.at("finished")
    assert_true_to(ev, path, {"a": "about bread and ovens"})
