"""Conditions on metadata as Qdrant filters.

Qdrant compares numbers as floats, and has no ranges of texts: its results may be too many, never
too few, and are checked again.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from evervec.indexes.facts import is_exact
from evervec.indexes.partial_filter import narrowed
from evervec.indexes.qdrant.engine import Engine
from evervec.model.filters import Condition, Conditions, Scalar, is_number

_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def says_it_all(conditions: Conditions) -> bool:
    """Whether results of Qdrant need no second check: equality of texts is exact."""
    return all(
        isinstance(c, Condition)
        and c.op in ("eq", "in")
        and path_of(c.field)
        and all(isinstance(v, str) for v in c.values)
        for c in conditions
    )


def pushed_down(engine: Engine, conditions: Conditions) -> list[Any]:
    """The conditions that points must pass."""

    def fits(c: Condition) -> Any:
        key = path_of(c.field)
        if key is None or c.op == "contains":
            return None
        if c.op in ("eq", "in"):
            ways = [_equal(engine, key, v) for v in c.values]
            return None if None in ways else engine.either(*ways)
        if c.op == "ne":
            return is_not(Condition(c.field, "eq", c.value))
        if not is_number(c.value):
            return None
        least, most = _ends(c.value)
        return (
            engine.between(key, gte=least)
            if c.op in ("gt", "gte")
            else engine.between(key, lte=most)
        )

    def is_not(c: Condition) -> Any:
        if c.op == "ne":
            return fits(Condition(c.field, "eq", c.value))
        exact = c.op in ("eq", "in") and all(v is not None and is_exact(v) for v in c.values)
        equal = fits(c) if exact else None
        return None if equal is None else engine.all(but=[equal])

    def either(groups: Sequence[Sequence[Any]]) -> Any:
        return engine.either(*(g[0] if len(g) == 1 else engine.all(*g) for g in groups))

    return narrowed(conditions, fits, is_not, either)


def _equal(engine: Engine, key: str, value: Scalar) -> Any:
    if value is None:
        return engine.empty(key)
    if isinstance(value, str | bool):
        return engine.equals(key, value)
    least, most = _ends(value)
    return engine.between(key, gte=least, lte=most)


def _ends(value: int | float) -> tuple[float, float]:
    """A range of floats with the number in it: not every engine rounds what it has stored."""
    near = float(value)
    if is_exact(value):
        return near, near
    return math.nextafter(near, -math.inf), math.nextafter(near, math.inf)


def path_of(field: str) -> str | None:
    """The path of a field in the payload; None for a name that a path cannot express."""
    if _PLAIN.fullmatch(field):
        return f"metadata.{field}"
    return None if '"' in field or "\\" in field else f'metadata."{field}"'
