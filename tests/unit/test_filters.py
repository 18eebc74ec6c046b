"""Filters: what the store answers is what the documented meaning says."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import evervec
from evervec import Evervec, InvalidArgument
from evervec.indexes.base import Query
from evervec.model.filters import matches as evervec_matches
from evervec.model.filters import parse_filter
from support.engines import INDEXES, apart
from support.filters import matches
from support.vectors import change, vector
from support.world import World, work

FIELDS = ("a", "b.c", 'quo"te', "it's", "ü", "$", "0")
WORDS = st.sampled_from(["", "a", "B", "b", "aa", "é", "z", "0", "1", "null", "true"])
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([0.5, -1.0, 2.0, 1e300, 2**53, 2**62]))
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, WORDS)
VALUES = st.one_of(
    SCALARS,
    st.lists(st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=3),
    st.dictionaries(st.sampled_from(FIELDS), SCALARS, max_size=2),
)
METADATA = st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=4)
RANGED = st.one_of(NUMBERS, WORDS)
OPERATIONS = st.one_of(
    st.fixed_dictionaries({}, optional={"eq": SCALARS, "ne": SCALARS, "exists": st.booleans()}),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("gt", "gte", "lt", "lte"), RANGED)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("in", "not_in"), st.lists(SCALARS))),
    st.fixed_dictionaries({}, optional={"contains": WORDS}),
).filter(bool)
PLAIN = st.dictionaries(
    st.sampled_from(FIELDS), st.one_of(SCALARS, st.lists(SCALARS, max_size=3), OPERATIONS),
    min_size=1, max_size=2,
)  # fmt: skip
FILTERS = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.fixed_dictionaries({"not": inner}),
        st.fixed_dictionaries({"or": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"and": st.lists(inner, min_size=1, max_size=3)}),
    ),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def ev() -> Iterator[Evervec]:
    with evervec.open("memory:", embedder="noop") as ev:
        yield ev


@pytest.fixture(scope="module", params=["memory:", "duckdb"])
def any_ev(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Those that look into JSON in a way of their own; PostgreSQL has a server to ask."""
    folder = tmp_path_factory.mktemp("filters")
    url = f"duckdb:///{folder}/store.duckdb" if request.param == "duckdb" else request.param
    with evervec.open(url, embedder="noop") as ev:
        yield ev


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(METADATA, min_size=1, max_size=4), FILTERS)
def test_the_store_answers_what_the_meaning_says(
    ev: Evervec, found: list[dict[str, Any]], wanted: dict[str, Any]
) -> None:
    list(ev.add_many("n", ({"id": i, "text": "x", "metadata": m} for i, m in enumerate(found))))
    for place in range(len(found), 4):
        ev.delete("n", place)
    answer = {int(r.id) for r in ev.records("n", filter=wanted)}
    assert answer == {i for i, m in enumerate(found) if matches(m, wanted)}


@settings(max_examples=300)
@given(METADATA, FILTERS)
def test_what_engines_cannot_ask_is_answered_alike(
    metadata: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert evervec_matches(metadata, parse_filter(wanted)) is matches(metadata, wanted)


@pytest.fixture(params=[i for i in INDEXES if apart(i)])
def separate(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    world = World((INDEXES[request.param].stores[0], request.param), tmp_path)
    world.ev.add("n", "x", id="0")
    work(world.ev)
    yield world
    world.close()


_numbers = count(1000)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(METADATA, min_size=1, max_size=4), st.lists(FILTERS, min_size=1, max_size=3))
def test_indexes_apart_answer_what_the_meaning_says(
    separate: World, found: list[dict[str, Any]], asked: list[dict[str, Any]]
) -> None:
    index = separate.ev.index
    (version,) = [c.version for c in separate.ev.store.versions.collections()]
    records = {next(_numbers): metadata for metadata in found}
    tenant = f"t{min(records)}"
    index.apply(
        [
            replace(change(version, record, 10**6, ["x"], tenant=tenant), metadata=metadata)
            for record, metadata in records.items()
        ]
    )
    for wanted in asked:
        answer = index.search(Query(version, tenant, vector("x"), 10, parse_filter(wanted)))
        assert set(answer.records) == {r for r, m in records.items() if matches(m, wanted)}


@settings(max_examples=200)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_every_float_is_equal_to_itself(ev: Evervec, value: float) -> None:
    ev.add("float", "x", id="1", metadata={"a": value})
    assert len(ev.records("float", filter={"a": value})) == 1


@settings(max_examples=200)
@given(value=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8))
def test_every_text_is_equal_to_itself_and_to_nothing_shorter(ev: Evervec, value: str) -> None:
    ev.add("text", "x", id="1", metadata={"a": value, value or "empty": 1})
    assert len(ev.records("text", filter={"a": value, value or "empty": [1, value]})) == 1
    if value:
        assert ev.records("text", filter={"a": value[:-1]}) == []


@pytest.mark.parametrize(
    ("metadata", "wanted", "found"),
    [
        ({"a": 1}, {"a": 1}, True),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": True}, {"a": 1}, False),
        ({"a": "1"}, {"a": 1}, False),
        ({"a": ["x", "y"]}, {"a": "y"}, True),
        ({"a": ["x", "y"]}, {"a": {"ne": "y"}}, False),
        ({}, {"a": {"ne": "y"}}, True),
        ({}, {"a": None}, True),
        ({"a": None}, {"a": None}, True),
        ({"a": 0}, {"a": None}, False),
        ({"a": None}, {"a": {"ne": None}}, False),
        ({"a": "x"}, {"a": {"ne": None}}, True),
        ({"a": 5}, {"a": {"gte": 5, "lt": 6}}, True),
        ({"a": "5"}, {"a": {"gte": 5}}, False),
        ({"a": "b"}, {"a": {"gt": "a"}}, True),
        ({"a": 5}, {"a": []}, False),
        ({"a": 5}, {}, True),
        ({"a": {"b": 1}}, {"a": 1}, False),
        ({"a": {"b": 1}}, {"b": 1}, False),
        ({"a": 1}, {"or": [{"a": 2}, {"a": 1}]}, True),
        ({"a": 1}, {"or": [{"a": 2}, {"b": 1}]}, False),
        ({"a": 1}, {"or": [{"a": 2}, {}]}, True),
        ({"a": 1}, {"not": {"or": [{"a": 2}, {}]}}, False),
        ({"a": 1, "b": 2}, {"and": [{"a": 1}, {"b": 3}]}, False),
        ({"a": 1, "b": 2}, {"not": {"a": 1, "b": 3}}, True),
        ({"a": 1, "b": 2}, {"not": {"a": 1, "b": 2}}, False),
        ({"a": 1}, {"not": {"not": {"a": 1}}}, True),
        ({}, {"not": {"a": {"gt": 1}}}, True),
        ({"a": "x"}, {"not": {"a": {"gt": 1}}}, True),
        ({"a": 1}, {"a": {"not_in": [1, 2]}}, False),
        ({}, {"a": {"not_in": [1, 2]}}, True),
        ({}, {"a": {"not_in": [None]}}, False),
        ({"a": 0}, {"a": {"exists": True}}, True),
        ({"a": None}, {"a": {"exists": True}}, False),
        ({}, {"a": {"exists": False}}, True),
        ({"a": "green tea"}, {"a": {"contains": "tea"}}, True),
        ({"a": "green tea"}, {"a": {"contains": "Tea"}}, False),
        ({"a": ["milk", "green tea"]}, {"a": {"contains": "tea"}}, True),
        ({"a": 12}, {"a": {"contains": "1"}}, False),
        ({"a": "50%"}, {"a": {"contains": "0%"}}, True),
        ({"a": "50"}, {"a": {"contains": "0%"}}, False),
        ({"a": "2024-03-01"}, {"a": {"gte": date(2024, 2, 29)}}, True),
        ({"a": "2024-03-01"}, {"a": {"lt": date(2024, 3, 1)}}, False),
    ],
)
def test_the_meaning_by_example(
    any_ev: Evervec, metadata: dict[str, Any], wanted: dict[str, Any], found: bool
) -> None:
    any_ev.add("example", "x", id="1", metadata=metadata)
    assert bool(any_ev.records("example", filter=wanted)) is found
    assert evervec_matches(metadata, parse_filter(wanted)) is found


@pytest.mark.parametrize(
    ("op", "found"),
    [
        ("gt", [False, False, True]),
        ("gte", [False, True, True]),
        ("lt", [True, False, False]),
        ("lte", [True, True, False]),
    ],
)
def test_ranges_have_the_ends_that_they_say(any_ev: Evervec, op: str, found: list[bool]) -> None:
    for values, bound in (((4, 5, 6), 5), (("a", "b", "c"), "b")):
        for value, fits in zip(values, found, strict=True):
            wanted = {"a": {op: bound}}
            any_ev.add("range", "x", id="1", metadata={"a": value})
            assert bool(any_ev.records("range", filter=wanted)) is fits
            assert evervec_matches({"a": value}, parse_filter(wanted)) is fits


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(METADATA, FILTERS)
def test_every_engine_answers_what_the_meaning_says(
    any_ev: Evervec, metadata: dict[str, Any], wanted: dict[str, Any]
) -> None:
    any_ev.add("n", "x", id="1", metadata=metadata)
    assert bool(any_ev.records("n", filter=wanted)) is matches(metadata, wanted)


@pytest.mark.parametrize(
    "wanted",
    [
        "a=1", ["a"], {"": 1}, {1: 1}, {"a": b"x"}, {"a": {"like": "x"}}, {"a": {"gt": None}},
        {"a": {"gt": True}}, {"a": {"gt": [1]}}, {"a": {"in": 5}}, {"a": [[1]]}, {"a": 2**63},
        {"a": {"eq": {}}}, {"or": []}, {"or": {"a": 1}}, {"or": ["a"]}, {"and": 1}, {"not": {}},
        {"not": [{"a": 1}]}, {"not": None}, {"or": [{"a": {"like": 1}}]}, {"a": {"exists": 1}},
        {"a": {"not_in": "x"}}, {"a": {"contains": 1}}, {"a": {"contains": None}},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_no_filter_is_refused(ev: Evervec, wanted: Any) -> None:
    with pytest.raises(InvalidArgument, match="filter"):
        ev.records(filter=wanted)
    with pytest.raises(InvalidArgument, match="filter"):
        ev.search("x", filter=wanted)
