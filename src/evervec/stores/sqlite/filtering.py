"""Metadata filters as SQL over the records' JSON. Field names are parameters, never SQL."""

from __future__ import annotations

from typing import Any

from evervec.filters import Condition, Scalar

# the field's own value, or an item of it where it is a list
_ITEMS = """exists (
    select 1 from json_tree(r.metadata) as item
    where {test} and (
        item.path = '$' and item.key = ?
        or exists (select 1 from json_each(r.metadata) as f
                   where f.id = item.parent and f.key = ? and f.type = 'array')))"""
_COMPARE = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}


def filter_sql(conditions: tuple[Condition, ...]) -> tuple[str, list[Any]]:
    """A clause that begins with `and`, over `evervec_records as r`, and its parameters."""
    clauses, values = [], []
    for condition in conditions:
        clause, needed = _clause(condition)
        clauses.append(f" and {clause}")
        values += needed
    return "".join(clauses), values


def _clause(c: Condition) -> tuple[str, list[Any]]:
    if c.op == "eq":
        return _equal(c.field, c.value)
    if c.op == "ne":
        clause, values = _equal(c.field, c.value)
        return f"not {clause}", values
    if c.op == "in":
        if not c.value:
            return "0", []
        parts = [_equal(c.field, value) for value in c.value]
        return f"({' or '.join(p for p, _ in parts)})", [v for _, vs in parts for v in vs]
    types = "('text')" if isinstance(c.value, str) else "('integer', 'real')"
    test = f"item.type in {types} and item.atom {_COMPARE[c.op]} ?"
    return _ITEMS.format(test=test), [c.value, c.field, c.field]


def _equal(field: str, value: Scalar) -> tuple[str, list[Any]]:
    if value is None:
        present = _ITEMS.format(test="item.type <> 'null'")
        return f"not {present}", [field, field]
    if isinstance(value, bool):
        test, needed = f"item.type = '{str(value).lower()}'", list[Any]()
    elif isinstance(value, str):
        test, needed = "item.type = 'text' and item.atom = ?", [value]
    else:
        test, needed = "item.type in ('integer', 'real') and item.atom = ?", [value]
    return _ITEMS.format(test=test), [*needed, field, field]
