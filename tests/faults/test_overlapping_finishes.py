"""Bulk finishes, failures and saves of the same rows in opposite order."""

import threading
from collections.abc import Callable
from functools import partial

from evervec import Evervec, Job
from support.fault_checks import assert_true_to, open_store, settle
from support.places import Place

COUNT = 200
ROUNDS = 8


def add_all(ev: Evervec, records: list[dict[str, str]]) -> None:
    list(ev.add_many("note", records))


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Make calls at the same moment; what they gave, or the error that one of them raised."""
    start, errors = threading.Barrier(len(calls)), list[BaseException]()
    answers: list[object] = []

    def run(call: Callable[[], object]) -> None:
        start.wait()
        try:
            answers.append(call())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


def test_overlapping_bulk_finishes_in_opposite_order_do_not_deadlock(
    ev: Evervec, path: Place
) -> None:
    """Two holders of the same token finish the same jobs, one from each end."""
    with open_store(path) as other:
        for turn in range(ROUNDS):
            ev.queue.enqueue_many("note", range(COUNT), priority=turn)
            jobs: list[Job] = ev.queue.claim(COUNT)
            assert len(jobs) == COUNT
            finishes = (
                partial(ev.queue.finish_many, jobs),
                partial(other.queue.finish_many, jobs[::-1]),
            )
            # the second is told what the first did
            assert at_once(*finishes) == [[True] * COUNT] * 2
            assert ev.queue.stats().processing == 0


def test_overlapping_bulk_saves_in_opposite_order_do_not_deadlock(ev: Evervec, path: Place) -> None:
    """Old and new records in both batches; the later save of each record wins, and is one job."""
    with open_store(path) as other:
        notes = {}
        for turn in range(ROUNDS):
            ids = [str(n) for n in range(turn * 20, turn * 20 + 60)]
            there = [{"id": id, "text": f"there {turn} {id}"} for id in ids]
            back = [{"id": id, "text": f"back {turn} {id}"} for id in reversed(ids)]
            at_once(partial(add_all, ev, there), partial(add_all, other, back))
            notes.update({r.id: r.text for r in ev.records("note", limit=10_000)})
    assert all(text.split()[0] in ("there", "back") for text in notes.values())
    settle(ev)
    assert_true_to(ev, path, notes)
