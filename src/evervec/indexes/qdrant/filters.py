"""Conditions on metadata in Qdrant's words.

Qdrant compares numbers as floats, and texts not at all: what it lets through may be too
much, never too little, and is looked at once more.
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
    """Whether what passes in Qdrant needs no second look: equal texts are the same anywhere."""
    return all(
        isinstance(value, str)
        for c in conditions
        for value in (c.value if c.op == "in" else (c.value if c.op == "eq" else None,))
    ) and all(_path(c.field) for c in conditions)


def pushed_down(engine: Engine, conditions: Sequence[Condition]) -> tuple[list[Any], list[Any]]:
    """What points must pass, and what they must not."""
    must: list[Any] = []
    but: list[Any] = []
    for c in conditions:
        key = _path(c.field)
        if key is None:
            continue
        if c.op in ("eq", "in"):
            values = c.value if c.op == "in" else (c.value,)
            ways = [_equal(engine, key, v) for v in values]
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


def _path(field: str) -> str | None:
    """Where a field lies in the payload; None for a name that its paths cannot say."""
    if _PLAIN.fullmatch(field):
        return f"metadata.{field}"
    return None if '"' in field or "\\" in field else f'metadata."{field}"'
