"""Writing points: exactly what a change says, and never back in time."""

import itertools

import pytest

from evervec.chunking import hash_text
from evervec.indexes.base import Query
from support.vectors import change, vector
from support.world import KIND, World, work

pytestmark = pytest.mark.index_port

RECORD = 1001


@pytest.fixture
def version(world: World) -> int:
    """A collection that serves, with nothing in it."""
    world.ev.add(KIND, "gone", id="0")
    work(world.ev)
    world.ev.delete(KIND, "0")
    work(world.ev)
    (collection,) = world.ev.store.versions.collections()
    return collection.version


def words_in(world: World, version: int, record: int = RECORD) -> list[bytes]:
    points = world.ev.index.held(version, None, record - 1, record)
    return sorted(p.hash for p in points)


def hashes(*words: str) -> list[bytes]:
    return sorted(hash_text(w) for w in words)


def test_a_record_has_exactly_the_points_of_its_last_change(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6, ["a", "b"])])
    assert words_in(world, version) == hashes("a", "b")
    index.apply([change(version, RECORD, 10**6 + 1, ["c"])])
    assert words_in(world, version) == hashes("c")
    index.apply([change(version, RECORD, 10**6 + 2)])
    assert words_in(world, version) == []


def test_kept_points_stay_without_being_given_again(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6, ["a", "b", "c"])])
    index.apply([change(version, RECORD, 10**6 + 1, ["d"], kept=["c", "a"])])
    assert words_in(world, version) == hashes("a", "c", "d")
    for word in "acd":
        (match,) = index.search(Query(version, "default", vector(word), 5))
        assert (match.record, match.hash) == (RECORD, hash_text(word))
    (match,) = index.search(Query(version, "default", vector("b"), 5))
    assert match.similarity < 0.9


def test_a_change_with_a_lower_seq_is_left_out(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6 + 5, ["new"])])
    index.apply([change(version, RECORD, 10**6 + 4, ["old"])])
    assert words_in(world, version) == hashes("new")
    index.apply([change(version, RECORD, 10**6 + 4)])
    assert words_in(world, version) == hashes("new")


def test_a_late_write_never_brings_a_removed_record_back(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6, ["a"])])
    index.apply([change(version, RECORD, 10**6 + 9)])
    index.apply([change(version, RECORD, 10**6 + 5, ["a"])])
    assert words_in(world, version) == []
    assert not index.search(Query(version, "default", vector("a"), 5))


def test_a_removal_of_what_was_never_there_still_stops_late_writes(
    world: World, version: int
) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6 + 9)])
    index.apply([change(version, RECORD, 10**6 + 5, ["a"])])
    assert words_in(world, version) == []
    index.apply([change(version, RECORD, 10**6 + 10, ["b"])])
    assert words_in(world, version) == hashes("b")


def test_kept_points_guard_by_their_new_seq(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6, ["a"])])
    index.apply([change(version, RECORD, 10**6 + 9, kept=["a"])])
    index.apply([change(version, RECORD, 10**6 + 5, ["b"])])
    assert words_in(world, version) == hashes("a")


def test_the_same_change_twice_is_the_same_as_once(world: World, version: int) -> None:
    index = world.ev.index
    for made in (
        change(version, RECORD, 10**6, ["a", "b"]),
        change(version, RECORD, 10**6 + 1, ["c"], kept=["a"]),
        change(version, RECORD, 10**6 + 2),
    ):
        index.apply([made])
        once = words_in(world, version)
        if not made.kept:
            index.apply([made])
            assert words_in(world, version) == once


def test_any_order_of_arrival_ends_with_the_latest(world: World, version: int) -> None:
    for record, order in enumerate(itertools.permutations(range(3)), RECORD):
        changes = [
            change(version, record, 10**6, ["a", "b"]),
            change(version, record, 10**6 + 1),
            change(version, record, 10**6 + 2, ["b", "c"]),
        ]
        for place in order:
            world.ev.index.apply([changes[place]])
        assert words_in(world, version, record) == hashes("b", "c"), order


def test_many_records_and_collections_in_one_call(world: World, version: int) -> None:
    world.ev.add("second", "x", id="1")
    work(world.ev)
    second = max(c.version for c in world.ev.store.versions.collections())
    world.ev.index.apply(
        [
            change(version, RECORD, 10**6, ["a"]),
            change(second, RECORD, 10**6, ["b"]),
            change(version, RECORD + 1, 10**6, ["c", "d"]),
        ]
    )
    assert words_in(world, version) == hashes("a")
    assert words_in(world, second) == hashes("b")
    assert words_in(world, version, RECORD + 1) == hashes("c", "d")


def test_nothing_to_apply_is_fine(world: World, version: int) -> None:
    world.ev.index.apply([])
    assert world.ev.index.held(version, None, 0, None) == []


def test_held_tells_points_by_tenant_and_range(world: World, version: int) -> None:
    index = world.ev.index
    index.apply(
        [
            change(version, RECORD, 10**6, ["a"]),
            change(version, RECORD + 1, 10**6, ["b"], tenant="other"),
            change(version, RECORD + 2, 10**6, ["c"]),
        ]
    )
    assert [p.record for p in index.held(version, None, 0, None)] == [
        RECORD,
        RECORD + 1,
        RECORD + 2,
    ]
    assert [p.record for p in index.held(version, "other", 0, None)] == [RECORD + 1]
    assert [p.record for p in index.held(version, None, RECORD, RECORD + 1)] == [RECORD + 1]
    assert index.held(version + 10**6, None, 0, None) == []


def test_remove_takes_out_just_the_named_points(world: World, version: int) -> None:
    index = world.ev.index
    index.apply([change(version, RECORD, 10**6, ["a", "b"])])
    index.search(Query(version, "default", vector("a"), 5))
    points = index.held(version, None, 0, None)
    doomed = [p for p in points if p.hash == hash_text("a")]
    assert index.remove(version, doomed) == 1
    assert index.remove(version, doomed) == 0
    assert words_in(world, version) == hashes("b")
    assert [m.hash for m in index.search(Query(version, "default", vector("a"), 5))] == [
        hash_text("b")
    ]
