"""Conditions on metadata as SQL over the columns of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evervec.indexes.facts import is_exact, ordered, present, rank, term
from evervec.model.filters import RANGES, Condition, Scalar
from evervec.stores.sql.quoting import literal


def texts(values: Iterable[str]) -> str:
    return ", ".join(map(literal, values))


def numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def says_it_all(conditions: Sequence[Condition]) -> bool:
    """Whether rows that pass the clause need no second check."""
    return all(
        c.op in ("eq", "in") and all(v is not None and is_exact(v) for v in c.values)
        for c in conditions
    )


def leaves_out_tombstones(conditions: Sequence[Condition]) -> bool:
    """Whether the clause excludes rows without any facts."""
    return any(
        c.op in RANGES or (c.op in ("eq", "in") and None not in c.values) for c in conditions
    )


def clause(conditions: Sequence[Condition]) -> list[str]:
    """Clauses that rows must pass, ANDed; more rows may pass than fit the conditions, never
    fewer."""
    made = [_condition(c) for c in conditions]
    return [one for one in made if one]


def _condition(c: Condition) -> str:
    if c.op in ("eq", "in"):
        return _one_of(c.field, c.values)
    if c.op == "ne":
        return f"not ({_one_of(c.field, c.values)})" if is_exact(c.value) else ""
    ends = "most" if c.op in ("gt", "gte") else "least"
    sign = ">=" if c.op in ("gt", "gte") else "<="
    place = f"cast(array_position(fields, {literal(ordered(c.field, c.value))}) as bigint)"
    return f"array_element({ends}, {place}) {sign} {literal(rank(c.value))}"


def _one_of(field: str, values: Sequence[Scalar]) -> str:
    terms = [term(field, v) for v in values if v is not None]
    parts = [f"array_has(terms, {literal(one)})" for one in terms]
    if len(terms) > 1:
        parts = [f"array_has_any(terms, [{texts(terms)}])"]
    if None in values:
        parts.append(f"not array_has(terms, {literal(present(field))})")
    return f"({' or '.join(parts)})" if parts else "false"
