"""How PostgreSQL looks into the records' JSON for metadata filters."""

from __future__ import annotations

from evervec.stores.sql import filtering

_ITEMS = """exists (
    select 1 from (select r.metadata::jsonb -> {field} as value) as f,
        jsonb_array_elements(
            jsonb_build_array(f.value)
            || case when jsonb_typeof(f.value) = 'array' then f.value else '[]' end) as item
    where {test})"""
_TEXT = (
    "case when jsonb_typeof(item) = 'string' then item #>> '{{}}' collate \"C\" {op} {value} end"
)
_NUMBER = "case when jsonb_typeof(item) = 'number' then item::numeric {op} {value}::numeric end"


class Filter(filtering.Filter):
    """Over `evervec.records as r`."""

    def place(self, value: str) -> str:
        return f"{super().place(value)}::text"

    def items(self, field: str, test: str) -> str:
        if "\0" in field:
            return "exists (select 1 where false)"
        return _ITEMS.format(field=self.place(field), test=test)

    def is_something(self) -> str:
        return "jsonb_typeof(item) <> 'null'"

    def is_boolean(self, value: bool) -> str:
        return f"item = '{str(value).lower()}'::jsonb"

    def is_text(self, op: str, value: str) -> str:
        if "\0" in value:  # which no record has
            return "false" if op == "=" else self.is_text(op, value.partition("\0")[0])
        return _TEXT.format(op=op, value=self.place(value))

    def is_number(self, op: str, value: int | float) -> str:
        return _NUMBER.format(op=op, value=self.place(repr(value)))
