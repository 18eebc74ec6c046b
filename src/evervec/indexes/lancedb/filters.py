"""Conditions on metadata as SQL over the columns of facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from evervec.indexes.facts import is_exact, ordered, present, rank, term
from evervec.indexes.partial_filter import narrowed
from evervec.model.filters import RANGES, Condition, Conditions, Scalar
from evervec.stores.sql.quotes import literal


def texts(values: Iterable[str]) -> str:
    return ", ".join(map(literal, values))


def numbers(values: Iterable[int]) -> str:
    return ", ".join(map(str, values))


def says_it_all(conditions: Conditions) -> bool:
    """Whether rows that pass the clause need no second check."""
    return all(
        isinstance(c, Condition)
        and c.op in ("eq", "in")
        and all(v is not None and is_exact(v) for v in c.values)
        for c in conditions
    )


def leaves_out_tombstones(conditions: Conditions) -> bool:
    """Whether the clause excludes rows without any facts."""
    return any(
        isinstance(c, Condition)
        and (
            c.op in RANGES or c.op == "contains" or (c.op in ("eq", "in") and None not in c.values)
        )
        for c in conditions
    )


def clause(conditions: Conditions) -> list[str]:
    """Clauses that rows must pass, ANDed; more rows may pass than fit the conditions, never
    fewer."""
    return narrowed(conditions, _fits, _is_not, _joined_by_or)


def _fits(c: Condition) -> str | None:
    if c.op in ("eq", "in"):
        return _one_of(c.field, c.values)
    if c.op == "ne":
        return _is_not(Condition(c.field, "eq", c.value))
    if c.op == "contains":
        return f"array_has(terms, {literal(present(c.field))})"
    ends = "most" if c.op in ("gt", "gte") else "least"
    sign = ">=" if c.op in ("gt", "gte") else "<="
    place = f"cast(array_position(fields, {literal(ordered(c.field, c.value))}) as bigint)"
    return f"array_element({ends}, {place}) {sign} {literal(rank(c.value))}"


def _is_not(c: Condition) -> str | None:
    if c.op == "ne":
        return _one_of(c.field, c.values)
    if c.op in ("eq", "in") and all(map(is_exact, c.values)):
        return f"not ({_one_of(c.field, c.values)})"
    return None  # a range and its opposite may both have a fact in common


def _joined_by_or(groups: Sequence[Sequence[str]]) -> str:
    return f"({' or '.join(' and '.join(group) for group in groups) or 'false'})"


def _one_of(field: str, values: Sequence[Scalar]) -> str:
    terms = [term(field, v) for v in values if v is not None]
    parts = [f"array_has(terms, {literal(one)})" for one in terms]
    if len(terms) > 1:
        parts = [f"array_has_any(terms, [{texts(terms)}])"]
    if None in values:
        parts.append(f"not array_has(terms, {literal(present(field))})")
    return f"({' or '.join(parts)})" if parts else "false"
