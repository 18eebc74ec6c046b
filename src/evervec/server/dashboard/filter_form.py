"""A metadata filter as the fields of a form: rows of field, test and value, and JSON beside them.

All of it is in the address (`field=`, `test=` and `value=` repeated, and `filter=`), so that a
filtered page can be sent to a colleague.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from starlette.datastructures import QueryParams

from evervec.server.answers import read_filter_json
from evervec.server.dashboard.words import spoken_list
from evervec.server.problems import Problem

TESTS = {
    "eq": "is", "ne": "is not", "gt": ">", "gte": "≥", "lt": "<", "lte": "≤",
    "contains": "contains", "in": "is one of", "not_in": "is none of", "exists": "is there",
    "missing": "is missing",
}  # fmt: skip
"""the tests of a row, as they are shown"""
_MOST_ROWS = 12


class Row(NamedTuple):
    """One test of one field, as it was typed."""

    field: str = ""
    test: str = "eq"
    value: str = ""


@dataclass(frozen=True, slots=True)
class FilterForm:
    """A filter as it was typed."""

    rows: tuple[Row, ...] = ()
    json: str = ""

    @classmethod
    def read(cls, params: QueryParams) -> FilterForm:
        """The filter in an address."""
        columns = (params.getlist("field"), params.getlist("test"), params.getlist("value"))
        rows: list[Row] = []
        for field, test, value in zip_longest(*columns, fillvalue=""):
            if field.strip() and len(rows) <= _MOST_ROWS:
                rows.append(Row(field.strip(), test, value))
        return cls(tuple(rows), params.get("filter", "").strip())

    @property
    def shown(self) -> tuple[Row, ...]:
        """The rows of the form: those that were filled in, and an empty one."""
        return (*self.rows, Row())

    @property
    def params(self) -> dict[str, Any]:
        """The parameters of an address with the same filter."""
        return {
            "field": [row.field for row in self.rows],
            "test": [row.test for row in self.rows],
            "value": [row.value for row in self.rows],
            "filter": self.json,
        }

    def filter(self) -> dict[str, Any] | None:
        """The filter as the library takes it; raises a `Problem` if it cannot be read."""
        if len(self.rows) > _MOST_ROWS:
            raise Problem(422, f"at most {_MOST_ROWS} fields: put more into the filter as JSON")
        parts = [{row.field: _tested(row)} for row in self.rows]
        if self.json:
            parts.append(read_filter_json(self.json))
        return _combined(parts)


def _combined(parts: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """One filter for all: in one object, unless two of them test the same field in the same way."""
    together: dict[str, Any] = {}
    for part in parts:
        for field, wanted in part.items():
            known = together.get(field)
            if known is None:
                together[field] = wanted
            elif isinstance(known, dict) and isinstance(wanted, dict) and not known.keys() & wanted:
                together[field] = known | wanted
            else:
                return {"and": list(parts)}
    return together or None


def _tested(row: Row) -> Any:
    match row.test:
        case "eq":
            return read_value(row.value)
        case "exists" | "missing":
            return {"exists": row.test == "exists"}
        case "in" | "not_in":
            return {row.test: [read_value(part) for part in row.value.split(",") if part.strip()]}
        case "contains":
            return {"contains": row.value}
        case test if test in TESTS:
            return {test: read_value(row.value)}
        case _:
            raise Problem(422, f"test: must be {spoken_list(TESTS, 'or')}, not {row.test[:40]!r}")


def read_value(text: str) -> Any:
    """A value as it was typed: a number, true, false or null is one, and a text in quotation marks
    is a text whatever it looks like."""
    try:
        found = json.loads(text, parse_constant=_not_a_number)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, list | dict) else found


def _not_a_number(text: str) -> str:
    return text
