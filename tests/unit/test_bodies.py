"""What is wrong with a body is described in a moment, in however many places it is wrong."""

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


@pytest.mark.parametrize("shape", sorted(set(shapes()), key=str), ids=lambda s: s.__name__)
def test_no_list_goes_on_after_an_error(shape: type[BaseModel]) -> None:
    def lists(schema: Any) -> Iterator[dict[str, Any]]:
        if isinstance(schema, dict):
            if schema.get("type") == "list":
                yield schema
            for part in schema.values():
                yield from lists(part)
        elif isinstance(schema, list | tuple):
            for part in schema:
                yield from lists(part)

    assert all(found.get("fail_fast") for found in lists(shape.__pydantic_core_schema__))
