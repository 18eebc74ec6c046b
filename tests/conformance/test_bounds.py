"""Every engine takes a filter as large as it may be; a larger one reaches none of them."""

from typing import Any

import pytest

from evervec import InvalidArgument
from support.world import KIND, World, work

pytestmark = pytest.mark.index_port

CONDITIONS, VALUES, CHARS = 64, 1000, 65_536


def test_a_filter_as_large_as_allowed_works(world: World) -> None:
    fields = {f"field {n}": n for n in range(CONDITIONS)}
    world.ev.add(KIND, "alpha", id="1", metadata={**fields, "list": [1, 2.5, "a", True]})
    world.ev.add(KIND, "alpha", id="2", metadata={**fields, "field 7": None, "list": []})
    work(world.ev)
    long = [f"{n:06}" + "x" * (CHARS // VALUES - 8) for n in range(VALUES - 1)]
    filters: list[tuple[dict[str, Any], set[str]]] = [
        (fields, {"1"}),
        ({name: {"lte": n} for name, n in fields.items()}, {"1"}),
        ({name: {"ne": -1} for name in fields}, {"1", "2"}),
        ({f"none {n}": None for n in range(CONDITIONS)}, {"1", "2"}),
        ({"list": list(range(1, VALUES + 1))}, {"1"}),
        ({"list": [n + 0.5 for n in range(VALUES)]}, {"1"}),
        ({"list": [*long, "a"]}, {"1"}),
        ({"list": [*long, True]}, {"1"}),
        ({"field 7": [*long, None]}, {"2"}),
        ({"list": long}, set()),
    ]
    for filter, ids in filters:
        assert {record.id for record in world.ev.records(filter=filter)} == ids
        for mode in ("semantic", "text"):
            assert {hit.id for hit in world.ev.search("alpha", mode=mode, filter=filter)} == ids


def test_what_no_metadata_has_is_compared_with_none(world: World) -> None:
    world.ev.add(KIND, "alpha", id="1", metadata={"a": "x", "n": 1})
    work(world.ev)
    filters: list[tuple[dict[str, Any], int]] = [
        ({"a\0": 1}, 0),
        ({"a\0": ["x", 1, True]}, 0),
        ({"a\0": ["x", None]}, 1),
        ({"a\0": {"gt": 1}}, 0),
        ({"a\0": {"ne": "x"}}, 1),
        ({"a": ["x\0", "\0"]}, 0),
        ({"a": {"ne": "x\0"}}, 1),
        ({"n": [float("nan"), float("inf")]}, 0),
        ({"n": {"ne": float("nan")}}, 1),
        ({"n": {"lt": float("inf")}}, 1),
        ({"n": []}, 0),
    ]
    for filter, count in filters:
        assert len(world.ev.records(filter=filter)) == count, filter
        for mode in ("semantic", "text"):
            assert len(world.ev.search("alpha", mode=mode, filter=filter)) == count, filter


@pytest.mark.parametrize(
    ("filter", "bound"),
    [
        ({f"f{n}": n for n in range(CONDITIONS + 1)}, "filter_conditions"),
        ({f"f{n}": {} for n in range(40_000)}, "filter_conditions"),
        ({f"f{n}": {"gt": n, "lt": n + 1} for n in range(33)}, "filter_conditions"),
        ({"a": list(range(VALUES + 1))}, "filter_values"),
        ({f"f{n}": {"in": list(range(20))} for n in range(60)}, "filter_values"),
        ({"a": "x" * CHARS}, "filter_chars"),
        ({"x" * (CHARS + 1): 1}, "filter_chars"),
        ({"a": ["x" * 100] * 700}, "filter_chars"),
    ],
)
def test_a_larger_filter_is_refused_with_the_name_of_its_bound(
    memory: World, filter: dict[str, Any], bound: str
) -> None:
    most = f"{getattr(memory.ev.settings, bound):,}"
    for ask in (memory.ev.records, lambda filter: memory.ev.search("alpha", filter=filter)):
        with pytest.raises(InvalidArgument, match=rf"at most {most} are allowed \({bound}\)"):
            ask(filter=filter)


def test_bounds_are_settings(memory: World) -> None:
    ev = memory.open(filter_conditions=2, filter_values=3, filter_chars=10, query_chars=5)
    assert ev.search("alpha", filter={"a": [1, 2], "b": 3}) == []
    for query, filter in (
        ("alpha", {"a": 1, "b": 2, "c": 3}),
        ("alpha", {"a": [1, 2, 3, 4]}),
        ("alpha", {"a": "0123456789"}),
        ("alphas", {}),
    ):
        with pytest.raises(InvalidArgument, match="at most"):
            ev.search(query, filter=filter)
