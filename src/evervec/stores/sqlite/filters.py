"""Metadata filters as SQLite conditions on the records' JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.stores.sql import filters as filtering

# Tests the field's value, or each item if it is a list. Metadata is read once per condition;
# values that are nested deeper are ignored.
_ITEMS = """exists (
    select 1 from json_each(r.metadata) as f
    where f.key = {field} and (({test_field}) or exists (
        select 1 from json_each(case f.type when 'array' then f.value else '[]' end) as item
        where {test_item})))"""
_NUMBERS = "('integer', 'real')"


class Filter(filtering.Filter):
    """Conditions on `evervec_records as r`. In a test, `{0}` is the tested value."""

    def place(self, value: Any) -> str:
        return super().place(value).replace("$", "?")

    def of_record(self, test: str) -> str:
        return test

    def items(self, field: str, test: str) -> str:
        tests = {"test_field": test.format("f"), "test_item": test.format("item")}
        return _ITEMS.format(field=self.place(field), **tests)

    def is_something(self) -> str:
        return "{0}.type <> 'null'"

    def is_boolean(self, value: bool) -> str:
        return f"{{0}}.type = '{str(value).lower()}'"

    def is_one_of_texts(self, values: list[str]) -> str:
        return f"{{0}}.type = 'text' and {{0}}.atom in ({self._places(values)})"

    def is_one_of_numbers(self, values: list[int | float]) -> str:
        return f"{{0}}.type in {_NUMBERS} and {{0}}.atom in ({self._places(values)})"

    def _places(self, values: Sequence[Any]) -> str:
        return ", ".join(map(self.place, values))

    def compares_text(self, op: str, value: str) -> str:
        return f"{{0}}.type = 'text' and {{0}}.atom {op} {self.place(value)}"

    def compares_number(self, op: str, value: int | float) -> str:
        return f"{{0}}.type in {_NUMBERS} and {{0}}.atom {op} {self.place(value)}"

    def contains(self, value: str) -> str:
        return f"{{0}}.type = 'text' and instr({{0}}.atom, {self.place(value)}) > 0"
