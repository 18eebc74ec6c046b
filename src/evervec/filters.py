"""Metadata filters: `{"field": value | [values] | {"gte": …, "lt": …, "ne": …}}`, ANDed.

A field that holds a list matches when one of its items does. `ne` matches also
where the field is absent; `None` stands for absent or null. Ranges compare numbers
with numbers and text with text, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evervec.errors import InvalidArgument

RANGES = ("gt", "gte", "lt", "lte")
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
