"""How DuckDB looks into the records' JSON for metadata filters."""

from __future__ import annotations

from evervec.stores.sql import filtering

_FIELD = "json_extract(r.metadata, {field})"
_ITEMS = f"""coalesce(len(list_filter(
    list_append(json_extract({_FIELD}, '$[*]'), {_FIELD}), lambda item: {{test}})), 0) > 0"""
_TEXT = "case when json_type(item) = 'VARCHAR' then (item ->> '$') {op} {value} end"
_NUMBER = """case json_type(item)
        when 'UBIGINT' then item::hugeint {op} {value} when 'BIGINT' then item::hugeint {op} {value}
        when 'DOUBLE' then item::double {op} {value}::double end"""


class Filter(filtering.Filter):
    """Over `evervec_records as r`."""

    def items(self, field: str, test: str) -> str:
        pointer = "/" + field.replace("~", "~0").replace("/", "~1")
        place = f"{self.place(pointer)}::varchar"
        return f"({_ITEMS.format(field=place, test=test)})"

    def is_something(self) -> str:
        return "json_type(item) <> 'NULL'"

    def is_boolean(self, value: bool) -> str:
        return f"json_type(item) = 'BOOLEAN' and item::varchar = '{str(value).lower()}'"

    def is_text(self, op: str, value: str) -> str:
        return _TEXT.format(op=op, value=f"{self.place(value)}::varchar")

    def is_number(self, op: str, value: int | float) -> str:
        kind = "double" if isinstance(value, float) else "hugeint"
        return _NUMBER.format(op=op, value=f"{self.place(value)}::{kind}")
