"""Named locks that expire by themselves, and waking."""

import threading

from support.world import KIND, World


def test_a_lock_is_held_by_one_at_a_time(world: World) -> None:
    store = world.ev.store
    assert store.shared.lock("sweep", "a", 60)
    assert store.shared.lock("sweep", "b", 60) is None
    assert store.shared.lock("other", "b", 60)


def test_its_holder_renews_it(world: World) -> None:
    store = world.ev.store
    store.shared.lock("sweep", "a", 60)
    world.clock.move(50)
    assert store.shared.lock("sweep", "a", 60)
    world.clock.move(50)
    assert store.shared.lock("sweep", "b", 60) is None


def test_it_expires_by_itself(world: World) -> None:
    store = world.ev.store
    store.shared.lock("sweep", "a", 60)
    world.clock.move(61)
    assert store.shared.lock("sweep", "b", 60)
    assert store.shared.lock("sweep", "a", 60) is None


def test_only_the_token_of_the_holder_unlocks(world: World) -> None:
    store = world.ev.store
    old = store.shared.lock("sweep", "a", 60)
    world.clock.move(61)
    new = store.shared.lock("sweep", "b", 60)
    assert old is not None
    assert new is not None
    assert old != new
    store.shared.unlock("sweep", old)
    assert store.shared.lock("sweep", "a", 60) is None
    store.shared.unlock("sweep", new)
    assert store.shared.lock("sweep", "a", 60)


def test_a_lock_says_who_holds_it_and_only_its_present_token_frees_it(world: World) -> None:
    store = world.ev.store
    assert store.shared.lock_holder("sweep") is None
    first = store.shared.lock("sweep", "a", 60)
    assert store.shared.lock_holder("sweep") == ("a", first)
    assert store.shared.lock("sweep", "b", 60) is None
    assert store.shared.lock_holder("sweep") == ("a", first)
    renewed = store.shared.lock("sweep", "a", 60)
    assert store.shared.lock_holder("sweep") == ("a", renewed)
    assert first is not None
    store.shared.unlock("sweep", first)
    assert store.shared.lock_holder("sweep") == ("a", renewed), "it was renewed since"
    assert renewed is not None
    store.shared.unlock("sweep", renewed)
    assert store.shared.lock_holder("sweep") is None


def test_two_openings_see_the_same_lock(shared_world: World) -> None:
    other = shared_world.open()
    assert shared_world.ev.store.shared.lock("sweep", "a", 60)
    assert other.store.shared.lock("sweep", "b", 60) is None


def test_many_at_once_one_gets_it(world: World) -> None:
    start, tokens = threading.Barrier(8), []

    def take(holder: str) -> None:
        start.wait()
        tokens.append(world.ev.store.shared.lock("sweep", holder, 60))

    threads = [threading.Thread(target=take, args=(str(n),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(token is not None for token in tokens) == 1


def test_a_waiting_thread_is_woken_by_every_kind_of_change(world: World) -> None:
    store = world.ev.store
    for change in (
        lambda: world.ev.add(KIND, "alpha", id="1"),
        lambda: world.ev.queue.release(world.ev.queue.claim(1)[0]),
        lambda: world.ev.queue.finish(world.ev.queue.claim(1)[0]),
        lambda: world.ev.queue.enqueue(KIND, "1"),
        lambda: world.ev.delete(KIND, "1"),
        lambda: world.ev.queue.fail(world.ev.queue.claim(1)[0], "x", permanent=True),
        world.ev.queue.retry_failed,
        world.ev.queue.resume,
    ):
        seen = store.wait(-1, 0)
        woken: list[int] = []
        thread = threading.Thread(target=lambda s=seen, w=woken: w.append(store.wait(s, 30)))
        thread.start()
        change()
        thread.join()
        assert woken[0] > seen


def test_a_wait_for_what_already_happened_returns_at_once(world: World) -> None:
    store = world.ev.store
    seen = store.wait(-1, 0)
    store.wake()
    assert store.wait(seen, 30) == seen + 1
