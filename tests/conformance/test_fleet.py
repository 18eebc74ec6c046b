"""Workers that live: by their last word, until they leave or fall silent."""

from datetime import timedelta

from support.processes import until
from support.world import KIND, World


def test_a_worker_is_listed_by_its_last_word(world: World) -> None:
    store = world.ev.store
    assert store.workers() == []
    store.beat("a:1", version="1.0", held=3, done=0)
    began = store.workers()[0].started_at
    world.clock.move(10)
    store.beat("a:1", version="1.0", held=0, done=7)
    store.beat("b:2", version="1.1", held=1, done=2)
    first, second = store.workers()
    assert (first.worker, first.held, first.done, first.started_at) == ("a:1", 0, 7, began)
    assert first.seen_at - began == timedelta(seconds=10)
    assert (second.worker, second.version) == ("b:2", "1.1")


def test_one_that_leaves_or_falls_silent_is_forgotten(world: World) -> None:
    store = world.ev.store
    store.beat("left", version="1", held=0, done=0)
    store.beat("silent", version="1", held=0, done=0)
    store.leave("left")
    assert [w.worker for w in store.workers()] == ["silent"]
    world.clock.move(3601)
    store.beat("alive", version="1", held=0, done=0)
    assert [w.worker for w in store.workers()] == ["alive"]


def test_a_running_worker_says_so_itself(world: World) -> None:
    with world.ev.worker():
        until(world.ev.store.workers, "the worker to say that it lives")
        world.ev.add(KIND, "alpha", id="1", wait=20)
    assert world.ev.store.workers() == []
