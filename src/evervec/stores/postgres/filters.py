"""Metadata filters as PostgreSQL conditions on the records' JSON."""

from __future__ import annotations

from evervec.stores.sql import filters as filtering

# `offset 0` stops the planner from inlining the cast, which would parse the metadata again for each
# condition
_RECORD = "exists (select 1 from (select r.metadata::jsonb as fields offset 0) as m where {test})"
_ITEMS = """exists (
    select 1 from (select m.fields -> {field} as value) as f,
        jsonb_array_elements(
            jsonb_build_array(f.value)
            || case when jsonb_typeof(f.value) = 'array' then f.value else '[]' end) as item
    where ({test}))"""
_TEXT = (
    "case when jsonb_typeof(item) = 'string' then item #>> '{{}}' collate \"C\" {op} {value} end"
)
_NUMBER = "case when jsonb_typeof(item) = 'number' then item::numeric {op} {value} end"


class Filter(filtering.Filter):
    """Conditions on `evervec.records as r`."""

    def place(self, value: str) -> str:
        return f"{super().place(value)}::text"

    def of_record(self, test: str) -> str:
        return _RECORD.format(test=test)

    def items(self, field: str, test: str) -> str:
        return _ITEMS.format(field=self.place(field), test=test)

    def is_something(self) -> str:
        return "jsonb_typeof(item) <> 'null'"

    def is_boolean(self, value: bool) -> str:
        return f"item = '{str(value).lower()}'::jsonb"

    def is_one_of_texts(self, values: list[str]) -> str:
        return _TEXT.format(op="=", value=f"any ({self._place_all(values)})")

    def is_one_of_numbers(self, values: list[int | float]) -> str:
        placed = self._place_all(list(map(repr, values)))
        return _NUMBER.format(op="=", value=f"any ({placed}::numeric[])")

    def _place_all(self, values: list[str]) -> str:
        return f"{super().place(values)}::text[]"

    def compares_text(self, op: str, value: str) -> str:
        # no record contains NUL, and PostgreSQL rejects it: compare with the part before it
        return _TEXT.format(op=op, value=self.place(value.partition("\0")[0]))

    def compares_number(self, op: str, value: int | float) -> str:
        return _NUMBER.format(op=op, value=f"{self.place(repr(value))}::numeric")

    def contains(self, value: str) -> str:
        test = f"strpos(item #>> '{{}}', {self.place(value)}) > 0"
        return f"case when jsonb_typeof(item) = 'string' then {test} end"
