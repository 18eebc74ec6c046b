"""What processes of a store share: notes, sums of what was spent, vectors to use again."""

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from evervec.model.usage import Spend
from evervec.stores.base import Store
from support.engines import OWN_PAIRS, SHARED_PAIRS
from support.world import World


@pytest.fixture(params=OWN_PAIRS, ids="-".join)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Every store; an index has no part in this."""
    world = World(request.param, tmp_path)
    yield world
    world.close()


@pytest.fixture(params=[pair for pair in OWN_PAIRS if pair in SHARED_PAIRS], ids="-".join)
def shared_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    """Those that may be opened several times."""
    world = World(request.param, tmp_path)
    yield world
    world.close()


def at_once(*tasks: Callable[[], object]) -> None:
    """Do all of it at the same moment, each in a thread of its own."""
    start, raised = threading.Barrier(len(tasks)), []

    def run(task: Callable[[], object]) -> None:
        start.wait()
        try:
            task()
        except Exception as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=[task]) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert raised == []


# ---- notes


def put(store: Store, name: str, value: str) -> None:
    note = store.shared.note(name)
    assert store.shared.put_note(name, value, note.revision if note else None)


def value(store: Store, name: str) -> str | None:
    note = store.shared.note(name)
    return note.value if note else None


def test_there_is_no_note_before_one_is_put(world: World) -> None:
    store = world.ev.store
    assert store.shared.note("gate") is None
    assert store.shared.put_note("gate", "shut", None)
    assert value(store, "gate") == "shut"


def test_a_note_is_any_text(world: World) -> None:
    store = world.ev.store
    for text in ("", '{"a": "日本"}', "x" * 100_000):
        put(store, "gate", text)
        assert value(store, "gate") == text


def test_notes_do_not_disturb_each_other(world: World) -> None:
    store = world.ev.store
    put(store, "gate a", "shut")
    put(store, "gate b", "open")
    put(store, "gate a", "ajar")
    assert (value(store, "gate a"), value(store, "gate b")) == ("ajar", "open")


def test_a_note_is_set_only_by_who_has_read_it_as_it_is(world: World) -> None:
    store = world.ev.store
    put(store, "gate", "first")
    read = store.shared.note("gate")
    assert read is not None
    assert store.shared.put_note("gate", "second", read.revision)
    assert not store.shared.put_note("gate", "too late", read.revision)
    assert not store.shared.put_note("gate", None, read.revision)
    assert not store.shared.put_note("gate", "as if there were none", None)
    assert not store.shared.put_note("gate", None, None)
    assert value(store, "gate") == "second"


def test_the_same_value_again_is_a_change_too(world: World) -> None:
    store = world.ev.store
    put(store, "gate", "shut")
    first = store.shared.note("gate")
    put(store, "gate", "shut")
    assert store.shared.note("gate") != first


def test_a_note_is_dropped_only_by_who_has_read_it_as_it_is(world: World) -> None:
    store = world.ev.store
    assert store.shared.put_note("gate", None, None)  # nothing there, and nothing to do
    put(store, "gate", "shut")
    read = store.shared.note("gate")
    assert read is not None
    assert store.shared.put_note("gate", None, read.revision)
    assert store.shared.note("gate") is None
    assert not store.shared.put_note("gate", None, read.revision)
    assert not store.shared.put_note("gate", "back", read.revision)
    assert store.shared.note("gate") is None


def test_a_note_that_was_dropped_and_put_anew_is_not_the_one_that_was_read(world: World) -> None:
    """Or who read the first would take the second for it, and overwrite or heed it wrongly."""
    store = world.ev.store
    put(store, "gate", "first")
    first = store.shared.note("gate")
    assert first is not None
    assert store.shared.put_note("gate", None, first.revision)
    put(store, "gate", "second")
    second = store.shared.note("gate")
    assert second is not None
    assert second.revision != first.revision
    assert not store.shared.put_note("gate", None, first.revision)
    assert value(store, "gate") == "second"


def count_up(store: Store, times: int) -> None:
    """Add to a number in a note, as often as it takes to be the fastest."""
    for _ in range(times):
        while True:
            note = store.shared.note("number")
            count = int(note.value) if note else 0
            if store.shared.put_note("number", str(count + 1), note.revision if note else None):
                break


def test_of_threads_that_race_none_overwrites_another(world: World) -> None:
    at_once(*[lambda: count_up(world.ev.store, 25)] * 4)
    assert value(world.ev.store, "number") == "100"


def test_of_openings_that_race_none_overwrites_another(shared_world: World) -> None:
    stores = [shared_world.ev.store, shared_world.open().store]
    at_once(*[lambda s=s: count_up(s, 25) for s in stores for _ in range(2)])
    assert value(stores[0], "number") == value(stores[1], "number") == "100"


def test_of_many_who_put_a_first_note_one_does(world: World) -> None:
    store, won = world.ev.store, []
    at_once(
        *[lambda n=n: won.append((store.shared.put_note("new", str(n), None), n)) for n in range(8)]
    )
    (winner,) = [n for done, n in won if done]
    assert value(store, "new") == str(winner)


def test_another_opening_sees_notes_and_changes_them(shared_world: World) -> None:
    store, other = shared_world.ev.store, shared_world.open().store
    put(store, "gate", "shut")
    assert other.shared.note("gate") == store.shared.note("gate")
    put(other, "gate", "open")
    assert value(store, "gate") == "open"


# ---- what was spent


def spend(day: str, tenant: str = "a", kind: str = "note", model: str = "m", n: int = 1) -> Spend:
    return Spend(day, tenant, kind, model, 0.5 * n, 100 * n, 0.25 * n)


def test_nothing_is_spent_at_first(world: World) -> None:
    assert world.ev.store.shared.spend(None, "2000-01-01") == []


def test_what_is_spent_adds_up_by_day_tenant_kind_and_model(world: World) -> None:
    store = world.ev.store
    apart = [
        spend("2027-01-15"), spend("2027-01-15", model="n"), spend("2027-01-15", kind="task"),
        spend("2027-01-15", tenant="b"), spend("2027-01-14"),
    ]  # fmt: skip
    store.shared.add_spend(apart)
    store.shared.add_spend([spend("2027-01-15"), spend("2027-01-15"), spend("2027-01-14", n=7)])
    store.shared.add_spend([])
    expected = {(s.day, s.tenant, s.kind, s.model): s for s in apart}
    expected["2027-01-15", "a", "note", "m"] = spend("2027-01-15", n=3)
    expected["2027-01-14", "a", "note", "m"] = spend("2027-01-14", n=8)
    found = store.shared.spend(None, "2027-01-01")
    assert {(s.day, s.tenant, s.kind, s.model): s for s in found} == expected
    assert len(found) == 5


def test_a_tenant_sees_its_own_spend_alone(world: World) -> None:
    store = world.ev.store
    store.shared.add_spend([spend("2027-01-15"), spend("2027-01-15", tenant="b", n=2)])
    assert store.shared.spend("a", "2027-01-01") == [spend("2027-01-15")]
    assert store.shared.spend("b", "2027-01-01") == [spend("2027-01-15", tenant="b", n=2)]
    assert store.shared.spend("c", "2027-01-01") == []


def test_days_come_the_latest_first_from_the_one_that_was_asked_for(world: World) -> None:
    store = world.ev.store
    days = ["2026-12-31", "2027-01-15", "2027-01-02", "2027-01-14"]
    store.shared.add_spend([spend(day) for day in days])
    assert [s.day for s in store.shared.spend("a", "2027-01-02")] == [
        "2027-01-15", "2027-01-14", "2027-01-02"
    ]  # fmt: skip


def test_what_many_spend_at_once_is_all_counted(world: World) -> None:
    store = world.ev.store

    def buy() -> None:
        for _ in range(25):
            store.shared.add_spend([spend("2027-01-15")])

    at_once(*[buy] * 4)
    assert store.shared.spend("a", "2027-01-15") == [spend("2027-01-15", n=100)]


def test_openings_spend_together(shared_world: World) -> None:
    stores = [shared_world.ev.store, shared_world.open().store]
    for store in stores:
        store.shared.add_spend([spend("2027-01-15")])
    for store in stores:
        assert store.shared.spend(None, "2027-01-15") == [spend("2027-01-15", n=2)]


# ---- vectors to use again


def hashes(numbers: Sequence[int]) -> list[bytes]:
    return [n.to_bytes(16, "big") for n in numbers]


def vectors(numbers: Sequence[int], words: bytes = b"vector") -> dict[bytes, bytes]:
    return {h: words + h for h in hashes(numbers)}


def test_vectors_are_found_by_model_and_hash(world: World) -> None:
    store = world.ev.store
    assert store.shared.cached("m/8", hashes(range(3))) == {}
    store.shared.cache("m/8", vectors(range(2)), 100)
    store.shared.cache("n/8", vectors([1], b"other"), 100)
    store.shared.cache("m/8", {}, 100)
    assert store.shared.cached("m/8", hashes(range(3))) == vectors(range(2))
    assert store.shared.cached("n/8", hashes(range(3))) == vectors([1], b"other")
    assert store.shared.cached("m/8", []) == {}


def test_the_oldest_vectors_go_first(world: World) -> None:
    store = world.ev.store
    for n in range(10):
        store.shared.cache("m/8", vectors([n]), 4)
    assert store.shared.cached("m/8", hashes(range(10))) == vectors(range(6, 10))


def test_there_are_never_more_vectors_than_were_asked_for(world: World) -> None:
    store = world.ev.store
    store.shared.cache("m/8", vectors(range(10)), 4)
    assert len(store.shared.cached("m/8", hashes(range(10)))) == 4
    store.shared.cache("m/8", vectors(range(20, 22)), 2)
    assert store.shared.cached("m/8", hashes(range(30))) == vectors([20, 21])


def test_all_models_share_one_bound(world: World) -> None:
    store = world.ev.store
    store.shared.cache("m/8", vectors([0, 1]), 4)
    store.shared.cache("m/8", vectors([2]), 4)
    store.shared.cache("n/8", vectors(range(3)), 4)
    assert store.shared.cached("m/8", hashes(range(3))) == vectors([2])
    assert store.shared.cached("n/8", hashes(range(3))) == vectors(range(3))


def test_a_vector_that_is_there_already_takes_no_further_room(world: World) -> None:
    store = world.ev.store
    store.shared.cache("m/8", vectors(range(4)), 4)
    for _ in range(3):
        store.shared.cache("m/8", vectors([3]), 4)
    assert store.shared.cached("m/8", hashes(range(4))) == vectors(range(4))


def test_many_vectors_at_once(world: World) -> None:
    store = world.ev.store
    store.shared.cache("m/8", vectors(range(3000)), 10_000)
    assert store.shared.cached("m/8", hashes(range(5000))) == vectors(range(3000))


def test_openings_share_their_vectors(shared_world: World) -> None:
    shared_world.ev.store.shared.cache("m/8", vectors([1]), 4)
    assert shared_world.open().store.shared.cached("m/8", hashes([1])) == vectors([1])
