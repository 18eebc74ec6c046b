"""Verify while others write: what changes meanwhile is looked at again, never reported wrongly."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from evervec.indexes.base import Held
from support.world import KIND, World, add_all, assert_in_step, job_of, work

TEXTS = {str(n): f"text {n} of the harbour" for n in range(4)}


def before_each_look(
    world: World, monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]
) -> list[int]:
    """Do something whenever the index is about to be read; the numbers of the looks so far."""
    index, looks = world.ev.index, list[int]()
    held = index.held

    def looking(*given: Any) -> list[Held]:
        looks.append(len(looks))
        act(looks[-1])
        return held(*given)

    monkeypatch.setattr(index, "held", looking)
    return looks


def change_and_embed(world: World, id: str, text: str) -> None:
    world.ev.add(KIND, text, id=id)
    work(world.ev)


def test_a_record_that_was_settled_between_two_looks_is_not_wrong(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)

    def act(look: int) -> None:
        if look == 0:
            change_and_embed(world, "0", "changed")
            change_and_embed(world, "new", "just come")
            world.ev.delete(KIND, "1")
            work(world.ev)

    looks = before_each_look(world, monkeypatch, act)
    assert world.ev.verify(repair=True).found == {}
    assert len(looks) > 1
    assert work(world.ev).processed == 0, "nothing was enqueued"


def test_a_record_that_never_rests_is_left_out_and_the_others_are_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    (collection,) = world.ev.store.versions.collections()
    gone = job_of(world.ev, "3").record
    world.ev.index.remove(
        collection.version, world.ev.index.held(collection.version, None, gone - 1, gone)
    )
    before_each_look(
        world, monkeypatch, lambda look: change_and_embed(world, "0", f"changed {look}")
    )
    report = world.ev.verify(repair=True)
    assert report.found == {"missing": 1}
    assert (report.waiting, report.complete) == (1, False)


@pytest.mark.every_index
def test_a_repair_leaves_alone_what_was_written_since(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An orphan becomes a good point between the last look and its removal."""
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    world.ev.queue.cancel(world.ev.delete(KIND, "0").job_id)
    index = world.ev.index
    remove = index.remove

    def removing(version: int, points: list[Held]) -> int:
        change_and_embed(world, "0", TEXTS["0"])
        return remove(version, points)

    monkeypatch.setattr(index, "remove", removing)
    assert world.ev.verify(repair=True).found == {"orphaned": 1}
    assert_in_step(world.ev, TEXTS)


@pytest.mark.every_index
def test_beside_a_writer_and_a_worker_nothing_is_ever_wrong(shared_world: World) -> None:
    ev, stop = shared_world.ev, threading.Event()
    add_all(ev, KIND, *TEXTS.values())

    def write() -> None:
        for turn in range(10_000):
            if stop.is_set():
                return
            ev.add(KIND, f"turn {turn}", id=turn % 5)
            if turn % 3 == 0:
                ev.delete(KIND, turn % 4)

    writer = threading.Thread(target=write)
    with ev.worker():
        writer.start()
        try:
            found = [ev.verify().found for _ in range(8)]
        finally:
            stop.set()
            writer.join()
    assert found == [{}] * 8
    work(ev)
    assert ev.verify().clean


def test_progress_tells_of_every_record_once(world: World) -> None:
    add_all(world.ev, KIND, *TEXTS.values())
    work(world.ev)
    told: list[int] = []
    assert world.ev.verify(progress=told.append).checked == sum(told) == len(TEXTS)
