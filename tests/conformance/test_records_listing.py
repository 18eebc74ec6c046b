"""Listing records: by key, page by page, narrowed by kind, metadata and state."""

from typing import Any

import pytest

from evervec import InvalidArgument, Record
from evervec.model.jobs import Ticket
from support.world import World, add_all, work


def ids(world: World, **options: object) -> list[tuple[str, str]]:
    return [(r.kind, r.id) for r in world.ev.records(**options)]  # type: ignore[arg-type]


def test_records_come_in_order_of_kind_and_id(world: World) -> None:
    for kind, id in (("b", "1"), ("a", "2"), ("a", "10"), ("b", "0")):
        world.ev.add(kind, "x", id=id)
    assert ids(world) == [("a", "10"), ("a", "2"), ("b", "0"), ("b", "1")]
    assert ids(world, kind="b") == [("b", "0"), ("b", "1")]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_pages_leave_nothing_out_and_repeat_nothing(world: World, size: int) -> None:
    for kind in ("a", "b"):
        add_all(world.ev, kind, *"vwxyz")
    pages: list[Record] = []
    last = None
    while page := world.ev.records(after=last, limit=size):
        assert len(page) <= size
        pages += page
        assert len(pages) <= len(ids(world))
        last = page[-1]
    assert [(r.kind, r.id) for r in pages] == ids(world)
    assert ids(world, after=("a", "3"), limit=2) == [("a", "4"), ("b", "0")]


def test_a_page_of_one_kind_may_begin_behind_another_kind(world: World) -> None:
    for kind in ("a", "b", "c"):
        add_all(world.ev, kind, *"xyz")
    assert ids(world, kind="b", after=("b", "0")) == [("b", "1"), ("b", "2")]
    assert ids(world, kind="b", after=("a", "2")) == [("b", "0"), ("b", "1"), ("b", "2")]
    assert ids(world, kind="b", after=("c", "0")) == []


def test_embedded_tells_those_with_current_vectors_from_those_without(world: World) -> None:
    add_all(world.ev, "a", "one", "two")
    assert ids(world, embedded=True) == []
    work(world.ev)
    add_all(world.ev, "a", "one", "changed", "new")
    assert ids(world, embedded=True) == [("a", "0")]
    assert ids(world, embedded=False) == [("a", "1"), ("a", "2")]
    assert ids(world, embedded=False, limit=1) == [("a", "1")]
    assert len(ids(world, embedded=None)) == 3


def test_filters_narrow_the_list(world: World) -> None:
    for n in range(6):
        world.ev.add("a", "x", id=n, metadata={"n": n, "tags": ["even" if n % 2 == 0 else "odd"]})
    assert ids(world, filter={"n": {"gte": 2, "lt": 5}, "tags": "even"}) == [("a", "2"), ("a", "4")]
    assert ids(world, filter={"n": [1, 5]}) == [("a", "1"), ("a", "5")]
    assert ids(world, filter={"n": {"gte": 1}}, after=("a", "2"), limit=2) == [
        ("a", "3"), ("a", "4"),
    ]  # fmt: skip


def test_records_are_counted_and_deleted_by_a_filter(world: World) -> None:
    other = world.ev.of("another")
    for n in range(6):
        for ev in (world.ev, other):
            ev.add("ab"[n % 2], "x", id=n, metadata={"n": n})
    world.ev.add("a", "boxed", id="boxed", boxed=True, metadata={"n": 0})
    wanted = {"or": [{"n": {"lt": 2}}, {"n": 4}]}
    assert (world.ev.count(), world.ev.count("a"), world.ev.count("none")) == (6, 3, 0)
    assert (world.ev.count(filter=wanted), world.ev.count("a", wanted)) == (3, 2)
    assert world.ev.delete_where(wanted, "a", dry_run=True) == 2
    assert world.ev.count() == 6
    assert world.ev.delete_where(wanted, "a") == 2
    assert ids(world) == [("a", "2"), ("b", "1"), ("b", "3"), ("b", "5")]
    assert world.ev.delete_where(wanted) == 1
    assert world.ev.delete_where(wanted) == 0
    assert (world.ev.count(), other.count()) == (3, 6)
    work(world.ev)
    assert world.ev.verify(all_tenants=True).complete


def test_a_record_that_changes_before_it_is_deleted_is_judged_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        world.ev.add("a", "x", id=n, metadata={"old": True})
    changes = world.ev.store.changes
    delete = changes.delete

    def meanwhile(*args: Any, **options: Any) -> list[Ticket]:
        monkeypatch.setattr(changes, "delete", delete)
        world.ev.add("a", "x", id=0, metadata={"old": False})
        world.ev.add("a", "another", id=1, metadata={"old": True})
        return delete(*args, **options)

    monkeypatch.setattr(changes, "delete", meanwhile)
    assert world.ev.delete_where({"old": True}) == 2
    assert ids(world) == [("a", "0")]


def test_nothing_is_deleted_without_a_filter(world: World) -> None:
    world.ev.add("a", "x", id=1)
    without: tuple[Any, ...] = (
        {},
        None,
        {"and": [{}]},
        {"or": [{}]},
        {"or": [{"n": 1}, {}]},
        {"not": {"n": []}},
        {"n": {"not_in": []}},
        {"and": [{"or": [{"n": []}, {"m": {"not_in": []}}]}, {}]},
        {"not": {"and": [{"n": 1}, {"m": {"in": []}}]}},
    )
    for nothing in without:
        with pytest.raises(InvalidArgument, match="would delete every record"):
            world.ev.delete_where(nothing)
        assert world.ev.count() == 1


def test_a_filter_that_no_record_fits_deletes_none(world: World) -> None:
    world.ev.add("a", "x", id=1)
    filters: tuple[dict[str, Any], ...] = (
        {"n": []}, {"not": {"m": {"not_in": []}}}, {"or": [{"n": []}]},
    )  # fmt: skip
    for none in filters:
        assert world.ev.delete_where(none) == 0
    assert world.ev.count() == 1


def test_deleted_records_are_not_listed(world: World) -> None:
    add_all(world.ev, "a", "one", "two")
    world.ev.delete("a", "0")
    assert ids(world) == [("a", "1")]


def test_a_limit_below_one_is_refused(world: World) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        world.ev.records(limit=0)


def test_records_are_counted_by_kind(world: World) -> None:
    for kind, count in (("tea", 3), ("tide", 1)):
        list(world.ev.add_many(kind, ({"id": n, "text": f"{n}"} for n in range(count))))
    world.ev.delete("tea", "0")
    world.ev.add("box", "hidden", id="1", boxed=True)
    world.ev.of("other").add("tea", "theirs", id="1")
    counts = world.ev.store.records.count_kinds
    assert counts(world.ev.tenant) == {"tea": 2, "tide": 1}
    assert counts("other") == {"tea": 1}
    assert counts("nobody") == {}
