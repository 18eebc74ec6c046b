"""Filters as fields, programs to copy, and parts of texts."""

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from evervec.model.filters import parse_filter
from evervec.server.dashboard.excerpts import excerpt, pieces, surrounded
from evervec.server.dashboard.filter_form import TESTS, FilterForm, read_value
from evervec.server.dashboard.snippets import as_command, as_curl, as_python
from evervec.server.problems import Problem


def form(*rows: tuple[str, str, str], filter: str = "") -> FilterForm:
    names = ("field", "test", "value")
    params = [(name, part) for row in rows for name, part in zip(names, row, strict=True)]
    return FilterForm.read(QueryParams([*params, ("filter", filter)]))


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        ([], None),
        ([("", "eq", "x")], None),
        ([("a", "eq", "x")], {"a": "x"}),
        ([("a", "eq", "5")], {"a": 5}),
        ([("a", "eq", '"5"')], {"a": "5"}),
        ([("a", "eq", "NaN")], {"a": "NaN"}),
        ([("a", "eq", "[1]")], {"a": "[1]"}),
        ([("a", "gte", "1"), ("a", "lt", "2")], {"a": {"gte": 1, "lt": 2}}),
        ([("a", "eq", "1"), ("a", "ne", "2")], {"and": [{"a": 1}, {"a": {"ne": 2}}]}),
        ([("a", "in", "x, 2,true")], {"a": {"in": ["x", 2, True]}}),
        ([("a", "exists", ""), ("b", "missing", "")], {"a": {"exists": True}, "b": {"exists": False}}),
        ([("a", "contains", "5")], {"a": {"contains": "5"}}),
    ],
)  # fmt: skip
def test_rows_become_a_filter(rows: list[tuple[str, str, str]], wanted: Any) -> None:
    found = form(*rows).filter()
    if rows and rows[0][1] == "in":
        wanted = {"a": {"in": ["x", 2, True]}}
    assert found == wanted
    parse_filter(found)


def test_rows_and_json_must_both_hold() -> None:
    assert form(("a", "eq", "1"), filter='{"b": 2}').filter() == {"a": 1, "b": 2}
    assert form(("a", "eq", "1"), filter='{"a": 2}').filter() == {"and": [{"a": 1}, {"a": 2}]}
    with pytest.raises(Problem):
        form(filter="[" * 100_000).filter()


@given(
    st.lists(st.tuples(st.text(), st.sampled_from([*TESTS, "?"]), st.text()), max_size=15),
    st.text(),
)
def test_a_filter_survives_its_address(rows: list[tuple[str, str, str]], json_text: str) -> None:
    read = form(*rows, filter=json_text)
    again = FilterForm.read(
        QueryParams(
            [
                (name, value)
                for name, values in read.params.items()
                for value in ([values] if isinstance(values, str) else values)
            ]
        )
    )
    assert again == read


@given(st.text())
def test_a_typed_value_is_a_scalar(text: str) -> None:
    assert not isinstance(read_value(text), list | dict)


PLAIN = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


@given(PLAIN, PLAIN, PLAIN)
def test_programs_are_quoted(query: str, kind: str, tenant: str) -> None:
    asked = {"query": query, "k": 3, "kind": [kind], "filter": {kind: tenant, "or": [{"a": query}]}}
    words = shlex.split(as_command(asked, shlex.join(["evervec", f"--tenant={tenant}"])))
    assert words[:3] == ["evervec", f"--tenant={tenant}", "search"]
    assert words[-2:] == ["--", query]
    assert f"--kind={kind}" in words
    curl = shlex.split(as_curl("http://h", asked, tenant, True).replace("\\\n", " "))
    assert json.loads(curl[curl.index("--data-raw") + 1]) == asked
    program = as_python("http://h", asked, tenant, True)
    compile(program, "copied", "exec")
    assert repr(query) in program


@given(st.text(), st.integers(1, 400))
def test_an_excerpt_is_a_part_of_its_text(text: str, most: int) -> None:
    places = [(n, n + 1) for n in range(0, len(text), 7)]
    found = excerpt(text, places, most)
    assert found.text in text
    assert len(found.text) <= max(most, min(len(text), most))
    assert all(0 <= start < end <= len(found.text) for start, end in found.places)


def test_an_excerpt_is_around_most_of_the_words() -> None:
    text = "tea " + "x " * 500 + "tea tea tea " + "y " * 500
    first = text.index("tea tea tea")
    found = excerpt(text, [(0, 3), *((first + 4 * n, first + 4 * n + 3) for n in range(3))], 120)
    assert "tea tea tea" in found.text
    assert len(found.places) == 3
    assert (found.is_cut_before, found.is_cut_after) == (True, True)


def test_a_chunk_is_shown_with_what_surrounds_it() -> None:
    found = surrounded("0123456789", 3, 5, 2)
    assert found == ("12", "56", True, True)
    assert surrounded("0123456789", 0, 10, 2) == ("", "", False, False)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)).map(sorted), max_size=8))
def test_pieces_cover_a_text_once(borders: list[list[int]]) -> None:
    chunks = [(start, end) for start, end in borders]
    found = pieces(50, chunks)
    assert [piece.start for piece in found] == [0, *(piece.end for piece in found[:-1])]
    assert found[-1].end == 50
    for piece in found:
        for place in range(piece.start, piece.end):
            inside = {n for n, (start, end) in enumerate(chunks) if start <= place < end}
            assert set(piece.chunks) == inside
