"""Filters of Haystack as filters of evervec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date, datetime
from typing import Any

from haystack import Document
from haystack.errors import FilterError

from evervec.errors import InvalidArgument
from evervec.model.filters import parse_filter

Filter = dict[str, Any]
_RANGES = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}
_PARTS = frozenset(field.name for field in fields(Document)) - {"meta"}
"""parts of a document that are no metadata"""


def filter_of(given: Mapping[str, Any] | None) -> Filter | None:
    """The filter of evervec for a filter; None: everything matches. Raises `FilterError`."""
    if not given:
        return None
    found = _part(given)
    try:
        parse_filter(found)
    except InvalidArgument as error:
        raise FilterError(str(error)) from error
    return found


def field_of(name: str) -> str:
    """The metadata field of a name, with or without the prefix `meta.`"""
    if name in _PARTS:
        raise FilterError(f"only metadata can be filtered, not {name!r}: use 'meta.…'")
    return name.removeprefix("meta.")


def _part(given: Any) -> Filter:
    if not isinstance(given, Mapping):
        raise FilterError(f"a filter must be a dict, not {given!r}")
    for name in ("operator", "value") if "field" in given else ("operator", "conditions"):
        if name not in given:
            raise FilterError(f"the filter lacks {name!r}: {dict(given)!r}")
    if "field" in given:
        return _comparison(field_of(given["field"]), given["operator"], given["value"])
    parts = [_part(part) for part in given["conditions"]]
    operator = given["operator"]
    if operator == "NOT":
        return {"not": {"and": parts}}
    if operator in ("AND", "OR"):
        return {operator.lower(): parts}
    raise FilterError(f"unknown operator {operator!r}; choose one of AND, OR, NOT")


def _comparison(field: str, operator: str, value: Any) -> Filter:
    if operator in _RANGES:
        # nothing is larger or smaller than null
        return {field: []} if value is None else {field: {_RANGES[operator]: _bound(value)}}
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"{operator!r} needs a list, not {value!r}")
        return {field: {operator.replace(" ", "_"): value}}
    if operator not in ("==", "!="):
        known = ", ".join(("==", "!=", *_RANGES, "in", "not in"))
        raise FilterError(f"unknown operator {operator!r}; choose one of {known}")
    if isinstance(value, (list, dict)):
        raise FilterError(f"{operator!r} compares with one value, not with {value!r}: use 'in'")
    return {field: {"eq" if operator == "==" else "ne": value}}


def _bound(value: Any) -> Any:
    """What a range compares with: a number, or a date as ISO text."""
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            raise FilterError(
                f"{value!r} has no order: compare with a number, or with a date in ISO format"
            ) from None
    elif isinstance(value, bool) or not isinstance(value, (int, float, date)):
        raise FilterError(f"{value!r} has no order: compare with a number or a date")
    return value
