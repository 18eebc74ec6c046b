"""Metadata filters as DuckDB conditions on the records' JSON."""

from __future__ import annotations

from evervec.model.filters import Conditions
from evervec.stores.sql import filters as filtering

# A list with one item serves as a variable. Without it the metadata would be parsed again for each
# field, and all parsed values stay in memory until thousands of records are done.
_RECORD = (
    "len(list_filter([json_extract(r.metadata, {paths}::varchar[])], lambda fields: {test})) > 0"
)
_ITEMS = """(coalesce(len(list_filter(
    list_append(json_extract({field}, '$[*]'), {field}), lambda item: {test})), 0) > 0)"""
_TEXT = "case when json_type(item) = 'VARCHAR' then {test} end"
_NUMBER = """case json_type(item) when 'UBIGINT' then {whole} when 'BIGINT' then {whole}
        when 'DOUBLE' then {real} end"""


class Filter(filtering.Filter):
    """Conditions on `evervec_records as r`."""

    def __init__(self, conditions: Conditions, taken: int) -> None:
        self._paths: dict[str, int] = {}
        super().__init__(conditions, taken)

    def of_record(self, test: str) -> str:
        return _RECORD.format(paths=self.place(list(self._paths)), test=test)

    def items(self, field: str, test: str) -> str:
        path = "/" + field.replace("~", "~0").replace("/", "~1")
        number = self._paths.setdefault(path, len(self._paths) + 1)
        return _ITEMS.format(field=f"fields[{number}]", test=test)

    def is_something(self) -> str:
        return "json_type(item) <> 'NULL'"

    def is_boolean(self, value: bool) -> str:
        return f"json_type(item) = 'BOOLEAN' and item::varchar = '{str(value).lower()}'"

    def is_one_of_texts(self, values: list[str]) -> str:
        return _TEXT.format(test=f"list_contains({self.place(values)}::varchar[], item ->> '$')")

    def is_one_of_numbers(self, values: list[int | float]) -> str:
        tests = []
        if whole := [value for value in values if isinstance(value, int)]:
            place = f"{self.place(whole)}::hugeint[]"
            tests.append(
                _NUMBER.format(
                    whole=f"list_contains({place}, item::hugeint)",
                    real=f"list_contains({place}::double[], item::double)",
                )
            )
        if real := [value for value in values if isinstance(value, float)]:
            test = f"list_contains({self.place(real)}::double[], item::double)"
            tests.append(_NUMBER.format(whole=test, real=test))
        return " or ".join(tests)

    def compares_text(self, op: str, value: str) -> str:
        return _TEXT.format(test=f"(item ->> '$') {op} {self.place(value)}::varchar")

    def compares_number(self, op: str, value: int | float) -> str:
        place = f"{self.place(value)}::{'double' if isinstance(value, float) else 'hugeint'}"
        return _NUMBER.format(
            whole=f"item::hugeint {op} {place}", real=f"item::double {op} {place}::double"
        )

    def contains(self, value: str) -> str:
        return _TEXT.format(test=f"contains(item ->> '$', {self.place(value)}::varchar)")
