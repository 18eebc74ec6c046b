"""Metadata filters: `{"field": value | [values] | {"gte": …, "lt": …, "ne": …}}`, ANDed.

A field that holds a list matches when one of its items does. `ne` also matches where the field is
absent; `None` means absent or null. Ranges compare only numbers with numbers and text with text.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evervec.errors import InvalidArgument
from evervec.model.bounds import check_bound, shown
from evervec.settings import Settings

_COMPARE = {"gt": operator.gt, "gte": operator.ge, "lt": operator.lt, "lte": operator.le}
RANGES = tuple(_COMPARE)
Scalar = str | int | float | bool | None
Key = tuple[type, Scalar]


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of one field; `op` is eq, ne, in or a range."""

    field: str
    op: str
    value: Any
    keys: frozenset[Key] = dataclasses.field(init=False, repr=False, compare=False)
    """for eq, ne and in: the values in the form in which they are compared"""

    @property
    def values(self) -> tuple[Scalar, ...]:
        """The value or, for in, the values that it compares with."""
        return self.value if self.op == "in" else (self.value,)

    def __post_init__(self) -> None:
        values = () if self.op in _COMPARE else self.values
        keys = frozenset(_key(value) for value in values if value is not None)
        object.__setattr__(self, "keys", keys)


Conditions = tuple[Condition, ...]
"""a filter as stores and indexes take it: ANDed"""


def read_filter(given: Mapping[Any, Any] | None, settings: Settings) -> Conditions:
    """The conditions of a caller's filter. Refuses an invalid filter, or one larger than the
    settings allow; a far too large filter is refused by its lengths, before its contents are
    read."""
    if isinstance(given, Mapping):
        _check_lengths(given, settings)
    conditions = parse_filter(given)
    values = [v for c in conditions for v in c.values if isinstance(v, str)]
    texts = [*(c.field for c in conditions), *values]
    check_bound(settings, "filter_chars", sum(map(len, texts)), "filter: has {} characters")
    return conditions


def _check_lengths(given: Mapping[Any, Any], settings: Settings) -> None:
    def check(conditions: int, values: int) -> None:
        check_bound(settings, "filter_conditions", conditions, "filter: has {} conditions")
        check_bound(settings, "filter_values", values, "filter: compares with {} values")

    check(len(given), 0)
    conditions = values = 0
    for wanted in given.values():
        tests = (
            list(wanted.values())[: settings.filter_conditions + 1]
            if isinstance(wanted, Mapping)
            else [wanted]
        )
        conditions += len(wanted) if isinstance(wanted, Mapping) else 1
        values += sum(len(t) if isinstance(t, (list, tuple, set, frozenset)) else 1 for t in tests)
        check(conditions, values)


def parse_filter(given: Mapping[Any, Any] | None) -> Conditions:
    """The conditions of a filter; `InvalidArgument` names the invalid part."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):  # callers may have no type checker
        raise InvalidArgument(f"filter must be a dict of field to value, not {shown(given)}")
    found = []
    for name, wanted in given.items():
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"filter: field names must be text, not {shown(name)}")
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
            raise InvalidArgument(
                f"filter: {shown(name)}.{op} needs a number or text, not {shown(value)}"
            )
        return Condition(name, op, _scalar(name, value))
    known = ", ".join(("eq", "ne", "in", *RANGES))
    raise InvalidArgument(
        f"filter: {shown(name)}: unknown operator {shown(op)}; choose one of {known}"
    )


def _scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"filter: {shown(name)} has an unpaired surrogate") from None
    if value is None or isinstance(value, (str, bool, float)):
        return value
    if isinstance(value, int):
        if not -(1 << 63) <= value < 1 << 63:
            raise InvalidArgument(
                f"filter: {shown(name)} is compared with a number too large: {shown(value)}"
            )
        return value
    raise InvalidArgument(
        f"filter: {shown(name)} is compared with {shown(value)}; "
        "use text, a number, a boolean or None"
    )


@dataclass(frozen=True, slots=True)
class Wanted:
    """The values that a field may equal, grouped by how engines compare them."""

    texts: list[str]
    numbers: list[int | float]
    booleans: list[bool]
    absent: bool
    """null, or no such field"""

    @classmethod
    def of(cls, values: Sequence[Scalar]) -> Wanted:
        """Drops values that no metadata equals: texts with a NUL, and numbers that are not
        finite."""
        return cls(
            [v for v in values if isinstance(v, str) and "\0" not in v],
            [v for v in values if is_number(v) and math.isfinite(v)],  # type: ignore[arg-type, misc]
            [v for v in values if isinstance(v, bool)],
            None in values,
        )


def matches(metadata: Mapping[str, Any], conditions: Sequence[Condition]) -> bool:
    """Whether metadata passes all conditions: the reference implementation, for engines that cannot
    evaluate a condition themselves."""
    return all(_passes(metadata.get(c.field), c) for c in conditions)


def _passes(value: Any, c: Condition) -> bool:
    if c.op in _COMPARE:
        return any(
            is_number(v) == is_number(c.value) and _COMPARE[c.op](v, c.value)
            for v in comparable(value)
            if v is not None and not isinstance(v, bool)
        )
    equal = any(_key(v) in c.keys for v in comparable(value))
    if value is None:
        equal = None in c.value if c.op == "in" else c.value is None
    return not equal if c.op == "ne" else equal


def _key(value: Scalar) -> Key:
    """Equal for equal values: numbers of any type; other values only of the same type."""
    return (float if is_number(value) else type(value), value)


def comparable(value: Any) -> list[Scalar]:
    """The scalars of a field: its value or, if that is a list, its items."""
    found = value if isinstance(value, list) else [value]
    return [v for v in found if not isinstance(v, list | dict)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
