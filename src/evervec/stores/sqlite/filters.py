"""Metadata filters as SQL over the records' JSON. Field names are parameters, never SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from evervec.model.filters import Condition, Conditions, Scalar, Wanted
from evervec.stores.sql.filters import COMPARE

# Tests the field's value, or each item if it is a list. Metadata is read once per condition;
# values that are nested deeper are ignored.
_ITEMS = """exists (
    select 1 from json_each(r.metadata) as f
    where f.key = ? and ({test_field} or exists (
        select 1 from json_each(case f.type when 'array' then f.value else '[]' end) as item
        where {test_item})))"""
_NUMBERS = "('integer', 'real')"


def filter_sql(conditions: Conditions) -> tuple[str, list[Any]]:
    """A clause that begins with `and`, over `evervec_records as r`, and its parameters."""
    clauses, values = [], []
    for condition in conditions:
        clause, needed = _clause(condition)
        clauses.append(f" and {clause}")
        values += needed
    return "".join(clauses), values


def _clause(c: Condition) -> tuple[str, list[Any]]:
    if c.op in ("eq", "ne", "in"):
        clause, values = _equal(c.field, c.values)
        return f"not {clause}" if c.op == "ne" else clause, values
    types = "('text')" if isinstance(c.value, str) else _NUMBERS
    return _items(c.field, f"{{0}}.type in {types} and {{0}}.atom {COMPARE[c.op]} ?", [c.value])


def _equal(field: str, values: Sequence[Scalar]) -> tuple[str, list[Any]]:
    wanted = Wanted.of(values)
    tests = [f"{{0}}.type = '{str(value).lower()}'" for value in set(wanted.booleans)]
    if wanted.texts:
        tests.append(f"{{0}}.type = 'text' and {{0}}.atom in ({_places(wanted.texts)})")
    if wanted.numbers:
        tests.append(f"{{0}}.type in {_NUMBERS} and {{0}}.atom in ({_places(wanted.numbers)})")
    clauses, needed = [], list[Any]()
    if tests:
        clause, needed = _items(field, " or ".join(tests), [*wanted.texts, *wanted.numbers])
        clauses.append(clause)
    if wanted.absent:
        present, names = _items(field, "{0}.type <> 'null'", [])
        clauses.append(f"not {present}")
        needed += names
    return f"({' or '.join(clauses) or '0'})", needed


def _items(field: str, test: str, values: list[Any]) -> tuple[str, list[Any]]:
    """A test of the field's value, or of its items; `{0}` is the tested value."""
    tests = {"test_field": f"({test.format('f')})", "test_item": test.format("item")}
    return _ITEMS.format(**tests), [field, *values, *values]


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
