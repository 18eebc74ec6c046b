"""Metadata filters of LlamaIndex as filters of evervec.

They select what LlamaIndex's own `SimpleVectorStore` selects, and may be nested. A field with a list
matches if one of its items does, also where LlamaIndex would compare the list as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from evervec.errors import InvalidArgument
from evervec.model.filters import is_number

Filter = dict[str, Any]
_RANGES = {
    FilterOperator.GT: "gt",
    FilterOperator.GTE: "gte",
    FilterOperator.LT: "lt",
    FilterOperator.LTE: "lte",
}


def filter_of(given: MetadataFilters | None) -> Filter | None:
    """The filter of evervec for these filters; None: everything matches."""
    if given is None or not given.filters:
        return None
    parts = [
        _group(part) if isinstance(part, MetadataFilters) else _condition(part)
        for part in given.filters
    ]
    if given.condition is FilterCondition.OR:
        return {"or": parts}
    if given.condition is FilterCondition.NOT:
        return {"not": {"or": parts}}
    return {"and": parts}


def combine(*filters: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """A filter that all of these must fit."""
    given = [filter for filter in filters if filter is not None]
    return given[0] if len(given) == 1 else {"and": given} if given else None


def _group(given: MetadataFilters) -> Filter:
    found = filter_of(given)
    return {"and": [{}]} if found is None else found


def _condition(given: MetadataFilter) -> Filter:
    key, value, operator = given.key, given.value, given.operator
    if operator in _RANGES:
        return {key: {_RANGES[operator]: value}}
    if operator is FilterOperator.IS_EMPTY:
        return {"or": [{key: {"exists": False}}, {key: ""}]}
    make = _MAKERS.get(operator)
    if make is None:
        raise InvalidArgument(
            f"filter: {key!r}: evervec cannot compare by {operator.value!r}; use "
            f"{FilterOperator.TEXT_MATCH.value!r}, which tells upper from lower case"
        )
    if operator in _OF_LISTS and not isinstance(value, list):
        raise InvalidArgument(f"filter: {key!r}: {operator.value!r} needs a list, not {value!r}")
    if operator not in _OF_LISTS and isinstance(value, list):
        raise InvalidArgument(
            f"filter: {key!r}: {operator.value!r} compares with one value, not with a list; use "
            f"{FilterOperator.ANY.value!r} or {FilterOperator.ALL.value!r}"
        )
    return make(key, value)


def _one_of(key: str, *values: Any) -> Filter:
    """The field equals one of the values. In Python, and so in LlamaIndex, 1 equals True; null
    equals nothing."""
    alike = [bool(value) for value in values if is_number(value) and value in (0, 1)]
    return {key: [value for value in values if value is not None] + alike}


def _match(key: str, value: Any) -> Filter:
    return {key: {"contains": value}}


_MAKERS: dict[FilterOperator, Callable[[str, Any], Filter]] = {
    FilterOperator.EQ: _one_of,
    FilterOperator.CONTAINS: _one_of,
    FilterOperator.NE: lambda key, value: {"not": _one_of(key, value)},
    FilterOperator.IN: lambda key, values: _one_of(key, *values),
    FilterOperator.ANY: lambda key, values: _one_of(key, *values),
    FilterOperator.NIN: lambda key, values: {"not": _one_of(key, *values)},
    FilterOperator.ALL: lambda key, values: {
        "and": [{key: {"exists": True}}, *(_one_of(key, value) for value in values)]
    },
    FilterOperator.TEXT_MATCH: _match,
}
_OF_LISTS = (FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL)
