"""Conditions on metadata as Qdrant filters.

Qdrant compares numbers as floats, and has no ranges of texts: its results may be too many, never
too few, and are checked again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from evervec.indexes.facts import is_exact
from evervec.indexes.qdrant.engine import Engine
from evervec.model.filters import Condition, Scalar, is_number

_PLAIN = re.compile(r"[A-Za-z0-9_]+")


def says_it_all(conditions: Sequence[Condition]) -> bool:
    """Whether results of Qdrant need no second check: equality of texts is exact."""
    return all(
        c.op in ("eq", "in") and path_of(c.field) and all(isinstance(v, str) for v in c.values)
        for c in conditions
    )


def pushed_down(engine: Engine, conditions: Sequence[Condition]) -> tuple[list[Any], list[Any]]:
    """The conditions that points must pass, and those that they must not."""
    must: list[Any] = []
    but: list[Any] = []
    for c in conditions:
        key = path_of(c.field)
        if key is None:
            continue
        if c.op in ("eq", "in"):
            ways = [_equal(engine, key, v) for v in c.values]
            if None not in ways:
                must.append(engine.either(*ways))
        elif c.op == "ne":
            way = _equal(engine, key, c.value)
            if way is not None and c.value is not None and is_exact(c.value):
                but.append(way)
        elif is_number(c.value):
            end = "gte" if c.op in ("gt", "gte") else "lte"
            must.append(engine.between(key, **{end: float(c.value)}))
    return must, but


def _equal(engine: Engine, key: str, value: Scalar) -> Any:
    if value is None:
        return engine.empty(key)
    if isinstance(value, str | bool):
        return engine.equals(key, value)
    return engine.between(key, gte=float(value), lte=float(value))


def path_of(field: str) -> str | None:
    """The path of a field in the payload; None for a name that a path cannot express."""
    if _PLAIN.fullmatch(field):
        return f"metadata.{field}"
    return None if '"' in field or "\\" in field else f'metadata."{field}"'
