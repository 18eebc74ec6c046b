"""Metadata filters: `{"field": value | [values] | {"gte": …, "lt": …, "ne": …}}`, ANDed.

A field that holds a list matches when one of its items does. `ne` matches also
where the field is absent; `None` stands for absent or null. Ranges compare numbers
with numbers and text with text, and nothing else.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evervec.errors import InvalidArgument

_COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
RANGES = tuple(_COMPARE)
Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one field; `op` is eq, ne, in or a range."""

    field: str
    op: str
    value: Any


def parse_filter(given: Mapping[Any, Any] | None) -> tuple[Condition, ...]:
    """The conditions of a filter; `InvalidArgument` says which part is not one."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):  # callers may have no type checker
        raise InvalidArgument(f"filter must be a dict of field to value, not {given!r}")
    found = []
    for name, wanted in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"filter: a field is a name, not {name!r}")
        _scalar("a field's name", name)
        if isinstance(wanted, Mapping):
            found += [_operation(name, op, value) for op, value in wanted.items()]
        elif isinstance(wanted, (list, tuple, set, frozenset)):
            found.append(Condition(name, "in", tuple(_scalar(name, v) for v in wanted)))
        else:
            found.append(Condition(name, "eq", _scalar(name, wanted)))
    return tuple(found)


def _operation(name: str, op: Any, value: Any) -> Condition:
    if op in ("eq", "ne"):
        return Condition(name, op, _scalar(name, value))
    if op == "in" and isinstance(value, (list, tuple, set, frozenset)):
        return Condition(name, "in", tuple(_scalar(name, v) for v in value))
    if op in RANGES:
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise InvalidArgument(f"filter: {name}.{op} needs a number or text, not {value!r}")
        return Condition(name, op, _scalar(name, value))
    known = ", ".join(("eq", "ne", "in", *RANGES))
    raise InvalidArgument(f"filter: {name} has no operation {op!r}; there are {known}")


def _scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"filter: {name!r} has half a surrogate pair") from None
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(f"filter: {name} is compared with a number too large: {value}")
        return value
    raise InvalidArgument(
        f"filter: {name} is compared with {value!r}; use text, a number, a boolean or None"
    )


def matches(metadata: Mapping[str, Any], conditions: Sequence[Condition]) -> bool:
    """Whether metadata passes all conditions: the meaning itself, for what an engine cannot
    ask of its own."""
    return all(_passes(metadata.get(c.field), c.op, c.value) for c in conditions)


def _passes(value: Any, op: str, wanted: Any) -> bool:
    if op == "eq":
        return _equal(value, wanted)
    if op == "ne":
        return not _equal(value, wanted)
    if op == "in":
        return any(_equal(value, one) for one in wanted)
    compare = _COMPARE[op]
    return any(
        is_number(v) == is_number(wanted) and compare(v, wanted)
        for v in comparable(value)
        if v is not None and not isinstance(v, bool)
    )


def _equal(value: Any, wanted: Scalar) -> bool:
    if wanted is None:
        return value is None
    return any(
        v == wanted and (type(v) is type(wanted) or (is_number(v) and is_number(wanted)))
        for v in comparable(value)
    )


def comparable(value: Any) -> list[Scalar]:
    """A field's own value and, where it is a list, its items; those that are scalars."""
    found = value if isinstance(value, list) else [value]
    return [v for v in found if not isinstance(v, list | dict)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
