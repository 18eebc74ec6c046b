"""Metadata filters as SQL over the records' JSON. Field names are parameters, never SQL."""

from __future__ import annotations

import math
from typing import Any

from evervec.filters import Condition, Scalar

# the field's own value, or an item of it where it is a list
_ITEMS = """exists (
    select 1 from (select r.metadata::jsonb -> {field} as value) as f,
        jsonb_array_elements(
            jsonb_build_array(f.value)
            || case when jsonb_typeof(f.value) = 'array' then f.value else '[]' end) as item
    where {test})"""
_COMPARE = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_TEXT = (
    "case when jsonb_typeof(item) = 'string' then item #>> '{{}}' collate \"C\" {op} {value} end"
)
_NUMBER = "case when jsonb_typeof(item) = 'number' then item::numeric {op} {value}::numeric end"


class Filter:
    """A clause that begins with `and`, over `evervec.records as r`, and its parameters, which
    stand behind `taken` others."""

    def __init__(self, conditions: tuple[Condition, ...], taken: int) -> None:
        self.values: list[Any] = []
        self._taken = taken
        self.clause = "".join(f" and {self._clause(c)}" for c in conditions)

    def _place(self, value: Any) -> str:
        self.values.append(value)
        return f"${self._taken + len(self.values)}::text"

    def _clause(self, c: Condition) -> str:
        if c.op == "eq":
            return self._equal(c.field, c.value)
        if c.op == "ne":
            return f"not {self._equal(c.field, c.value)}"
        if c.op == "in":
            parts = [self._equal(c.field, value) for value in c.value]
            return f"({' or '.join(parts)})" if parts else "false"
        return self._items(c.field, self._compared(_COMPARE[c.op], c.value))

    def _equal(self, field: str, value: Scalar) -> str:
        if value is None:
            return f"not {self._items(field, 'jsonb_typeof(item) <> ' + repr('null'))}"
        if isinstance(value, bool):
            return self._items(field, f"item = '{str(value).lower()}'::jsonb")
        return self._items(field, self._compared("=", value))

    def _compared(self, op: str, value: Any) -> str:
        if isinstance(value, str):
            if "\0" in value:  # which no record has
                return "false" if op == "=" else self._compared(op, value.partition("\0")[0])
            return _TEXT.format(op=op, value=self._place(value))
        if math.isnan(value):
            return "false"
        return _NUMBER.format(op=op, value=self._place(repr(value)))

    def _items(self, field: str, test: str) -> str:
        if "\0" in field:
            return "exists (select 1 where false)"
        return _ITEMS.format(field=self._place(field), test=test)
