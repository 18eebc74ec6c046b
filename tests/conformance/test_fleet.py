"""Workers that live: by their last word, until they leave or fall silent."""

from datetime import timedelta

import pytest

from evervec import InvalidArgument
from support.processes import until
from support.world import KIND, World


def test_a_worker_is_listed_by_its_last_word(world: World) -> None:
    store = world.ev.store
    assert store.workers.all() == []
    store.workers.beat("a:1", version="1.0", held=3, done=0)
    began = store.workers.all()[0].started_at
    world.clock.move(10)
    store.workers.beat("a:1", version="1.0", held=0, done=7)
    store.workers.beat("b:2", version="1.1", held=1, done=2)
    first, second = store.workers.all()
    assert (first.worker, first.held, first.done, first.started_at) == ("a:1", 0, 7, began)
    assert first.seen_at - began == timedelta(seconds=10)
    assert (second.worker, second.version) == ("b:2", "1.1")


def test_one_that_leaves_or_falls_silent_is_forgotten(world: World) -> None:
    store = world.ev.store
    store.workers.beat("left", version="1", held=0, done=0)
    store.workers.beat("silent", version="1", held=0, done=0)
    store.workers.leave("left")
    assert [w.worker for w in store.workers.all()] == ["silent"]
    world.clock.move(3601)
    store.workers.beat("alive", version="1", held=0, done=0)
    assert [w.worker for w in store.workers.all()] == ["alive"]


def test_a_running_worker_says_so_itself(world: World) -> None:
    with world.ev.worker():
        until(world.ev.store.workers.all, "the worker to say that it lives")
        world.ev.add(KIND, "alpha", id="1", wait=20)
    assert world.ev.store.workers.all() == []


def test_a_paused_worker_claims_nothing_until_it_is_resumed(shared_world: World) -> None:
    ev = shared_world.ev
    name = ev.queue.worker
    with pytest.raises(InvalidArgument, match="no worker"):
        ev.pause_worker("nobody:1")
    with ev.worker():
        until(lambda: [w.worker for w in ev.workers()] == [name], "the worker to be listed")
        ev.pause_worker(name)
        until(lambda: ev.workers()[0].paused, "the pause to show")
        worker = ev.store.workers
        assert worker.is_paused(name)
    assert ev.workers() == []
    assert not worker.is_paused(name)


def test_a_worker_obeys_a_pause_and_goes_on_after_it(shared_world: World) -> None:
    ev = shared_world.ev
    worker = ev.worker()
    worker._forever = True
    ev.store.workers.beat(ev.queue.worker, version="0", held=0, done=0)
    ev.pause_worker(ev.queue.worker)
    ev.add(KIND, "text", id="1")
    worker._do_upkeep()
    assert not worker._start_batch()
    assert ev.queue.stats().pending == 1
    ev.resume_worker(ev.queue.worker)
    worker._next_recovery = 0.0
    worker._do_upkeep()
    assert worker._start_batch()
    worker._release_rest()
    assert not ev.workers()[0].paused
