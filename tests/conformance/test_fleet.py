"""Workers that live: by their last word, until they leave or fall silent."""

from datetime import timedelta

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
