"""Conditions on metadata as SQL over the columns of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evervec.indexes.facts import is_exact, ordered, present, rank, term
from evervec.model.filters import Condition, Scalar


def text(value: str) -> str:
    """A text as an SQL literal: quotes are doubled, and no other character is special."""
    return "'" + value.replace("'", "''") + "'"


def texts(values: Iterable[str]) -> str:
    return ", ".join(map(text, values))


def numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def says_it_all(conditions: Sequence[Condition]) -> bool:
    """Whether rows that pass the clause need no second check."""
    values = [
        value
        for c in conditions
        for value in (c.value if c.op == "in" else (c.value if c.op == "eq" else None,))
    ]
    return all(value is not None and is_exact(value) for value in values)


def leaves_out_tombstones(conditions: Sequence[Condition]) -> bool:
    """Whether the clause excludes rows without any facts."""
    return any(
        c.op not in ("eq", "ne", "in")
        or (c.op == "eq" and c.value is not None)
        or (c.op == "in" and None not in c.value)
        for c in conditions
    )


def clause(conditions: Sequence[Condition]) -> list[str]:
    """Clauses that rows must pass, ANDed; more rows may pass than fit the conditions, never
    fewer."""
    made = [_condition(c) for c in conditions]
    return [one for one in made if one]


def _condition(c: Condition) -> str:
    if c.op == "eq":
        return _one_of(c.field, [c.value])
    if c.op == "in":
        return _one_of(c.field, c.value)
    if c.op == "ne":
        return f"not ({_one_of(c.field, [c.value])})" if is_exact(c.value) else ""
    ends = "most" if c.op in ("gt", "gte") else "least"
    sign = ">=" if c.op in ("gt", "gte") else "<="
    place = f"cast(array_position(fields, {text(ordered(c.field, c.value))}) as bigint)"
    return f"array_element({ends}, {place}) {sign} {text(rank(c.value))}"


def _one_of(field: str, values: Sequence[Scalar]) -> str:
    terms = [term(field, v) for v in values if v is not None]
    parts = [f"array_has(terms, {text(one)})" for one in terms]
    if len(terms) > 1:
        parts = [f"array_has_any(terms, [{texts(terms)}])"]
    if None in values:
        parts.append(f"not array_has(terms, {text(present(field))})")
    return f"({' or '.join(parts)})" if parts else "false"
