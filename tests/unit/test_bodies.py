"""What is wrong with a body is described in a moment, in however many places it is wrong."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

import evervec.server.app  # noqa: F401 - declares all shapes
from evervec.server.answers import Given
from evervec.server.routes.records import RecordIn
from evervec.server.routes.search import SearchIn
from evervec.server.routes.vectors import VectorsIn

MANY = 5000
UNKNOWN = {f"f{n}": n for n in range(MANY)}


def shapes(of: type[BaseModel] = Given) -> Iterator[type[BaseModel]]:
    for shape in of.__subclasses__():
        yield shape
        yield from shapes(shape)


@pytest.mark.parametrize("shape", sorted(set(shapes()), key=str), ids=lambda s: s.__name__)
def test_unknown_fields_are_one_error(shape: type[BaseModel]) -> None:
    with pytest.raises(ValidationError, match="has 5,000 fields") as raised:
        shape.model_validate(UNKNOWN)
    assert raised.value.error_count() == 1


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (SearchIn, {"vector": ["x"] * MANY}),
        (SearchIn, {"query": "tea", "kind": [{}] * MANY}),
        (SearchIn, {"query": "tea", "fields": ["x"] * MANY}),
        (VectorsIn, {"kind": "note", "ids": [[]] * 100}),
        (RecordIn, {"kind": "a", "text": "a", "vectors": {"model": "m", "vectors": [[{}] * MANY]}}),
        (RecordIn, {"kind": "a", "text": "a", "vectors": {"model": "m", "vectors": [{}] * MANY}}),
    ],
    ids=lambda given: given.__name__ if isinstance(given, type) else "-".join(given),
)
def test_a_list_ends_with_its_first_error(shape: type[BaseModel], body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as raised:
        shape.model_validate(body)
    assert raised.value.error_count() <= 4


def _parts(shape: type[BaseModel], *types: str) -> Iterator[dict[str, Any]]:
    """The parts of these types, however deep."""
    left: list[Any] = [shape.__pydantic_core_schema__]
    while left:
        part = left.pop()
        if isinstance(part, dict):
            if part.get("type") in types:
                yield part
            left += part.values()
        elif isinstance(part, list | tuple):
            left += part


@pytest.mark.parametrize("shape", sorted(set(shapes()), key=str), ids=lambda s: s.__name__)
def test_no_list_goes_on_after_an_error(shape: type[BaseModel]) -> None:
    assert all(found.get("fail_fast") for found in _parts(shape, "list"))


@pytest.mark.parametrize(
    ("shape", "body", "field"),
    [
        (SearchIn, {"query": "tea", "k": "5"}, ("k",)),
        (SearchIn, {"query": "tea", "k": 5.0}, ("k",)),
        (SearchIn, {"query": "tea", "k": True}, ("k",)),
        (SearchIn, {"query": "tea", "offset": "1"}, ("offset",)),
        (SearchIn, {"query": "tea", "min_similarity": "0.5"}, ("min_similarity",)),
        (SearchIn, {"query": "tea", "explain": "yes"}, ("explain",)),
        (SearchIn, {"vector": [0.5, "0.5"]}, ("vector", 1)),
        (RecordIn, {"kind": "a", "text": "a", "weight": "1"}, ("weight",)),
    ],
)
def test_no_string_stands_for_a_number(
    shape: type[BaseModel], body: dict[str, Any], field: tuple[str | int, ...]
) -> None:
    with pytest.raises(ValidationError) as raised:
        shape.model_validate(body)
    with pytest.raises(ValidationError):
        shape.model_validate_json(json.dumps(body))
    assert [error["loc"] for error in raised.value.errors()] == [field]


def test_a_time_is_a_string_and_a_whole_number_is_a_number() -> None:
    given = {"kind": "a", "id": 7, "text": "a", "weight": 1, "created_at": "2020-01-01T00:00:00Z"}
    for made in (RecordIn.model_validate(given), RecordIn.model_validate_json(json.dumps(given))):
        assert (made.id, made.weight) == (7, 1.0)
        assert made.created_at is not None
        assert made.created_at.year == 2020


@pytest.mark.parametrize("shape", sorted(set(shapes()), key=str), ids=lambda s: s.__name__)
def test_every_number_in_a_body_is_strict(shape: type[BaseModel]) -> None:
    assert all(found.get("strict") for found in _parts(shape, "int", "float", "bool"))
