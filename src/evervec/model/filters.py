"""Metadata filters: `{"field": value | [values] | {"gte": …, "lt": …, "ne": …}}`, ANDed.

`{"and": [filters]}`, `{"or": [filters]}` and `{"not": filter}` combine filters. A field that holds a
list matches when one of its items does. `ne` and `not_in` also match where the field is absent;
`None` means absent or null, and `exists` the opposite. Ranges compare only numbers with numbers and
text with text; `contains` finds a part of a text. Dates are compared as ISO text.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
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
    """One test of one field; `op` is eq, ne, in, contains or a range."""

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
        values = self.values if self.op in ("eq", "ne", "in") else ()
        keys = frozenset(_key(value) for value in values if value is not None)
        object.__setattr__(self, "keys", keys)


@dataclass(frozen=True, slots=True)
class Group:
    """Filters that are combined; `op` is and, or, or not: the opposite of `and`."""

    op: str
    parts: Conditions


Conditions = tuple[Condition | Group, ...]
"""a filter as stores and indexes take it: ANDed"""
GROUPS = ("and", "or", "not")


def read_filter(given: Mapping[Any, Any] | None, settings: Settings) -> Conditions:
    """The conditions of a caller's filter. Refuses an invalid filter, or one larger than the
    settings allow; a far too large filter is refused by its lengths, before its contents are
    read."""
    if isinstance(given, Mapping):
        _check_lengths(given, settings)
    conditions = parse_filter(given)
    single = list(_single(conditions))
    values = [v for c in single for v in c.values if isinstance(v, str)]
    texts = [*(c.field for c in single), *values]
    check_bound(settings, "filter_chars", sum(map(len, texts)), "filter: has {} characters")
    return conditions


def _single(conditions: Conditions) -> Iterator[Condition]:
    for part in conditions:
        if isinstance(part, Group):
            yield from _single(part.parts)
        else:
            yield part


def _check_lengths(given: Mapping[Any, Any], settings: Settings) -> None:
    """Check the number of conditions and values, and the depth, level by level."""
    conditions = values = depth = 0
    level: list[Any] = [given]
    while level:
        check_bound(settings, "filter_depth", depth, "filter: is nested {} deep")
        deeper: list[Any] = []
        for part in level:
            conditions += max(len(part), 1)
            _check_counts(settings, conditions, values)
            for name, wanted in part.items():
                if name in GROUPS:
                    parts = wanted if isinstance(wanted, (list, tuple)) else (wanted,)
                    _check_counts(settings, conditions + len(parts), values)
                    deeper += [one for one in parts if isinstance(one, Mapping)]
                    continue
                tests: Iterable[Any] = (wanted,)
                if isinstance(wanted, Mapping):
                    conditions += max(len(wanted) - 1, 0)
                    _check_counts(settings, conditions, values)
                    tests = wanted.values()
                values += sum(
                    len(t) if isinstance(t, (list, tuple, set, frozenset)) else 1 for t in tests
                )
                _check_counts(settings, conditions, values)
        level, depth = deeper, depth + 1


def _check_counts(settings: Settings, conditions: int, values: int) -> None:
    check_bound(settings, "filter_conditions", conditions, "filter: has {} conditions")
    check_bound(settings, "filter_values", values, "filter: compares with {} values")


def as_json(given: Any) -> Any:
    """A filter with lists in place of sets, which JSON does not have. What JSON would change, or
    cannot be nested so deep, raises `InvalidArgument`."""
    try:
        return _as_json(given)
    except RecursionError:
        raise InvalidArgument("filter: is nested too deep") from None


def _as_json(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {_field(name): _as_json(value) for name, value in given.items()}
    if isinstance(given, list | tuple | set | frozenset):
        return [_as_json(value) for value in given]
    return given


def parse_filter(given: Mapping[Any, Any] | None) -> Conditions:
    """The conditions of a filter; `InvalidArgument` names the invalid part."""
    if given is None:
        return ()
    if not isinstance(given, Mapping):  # callers may have no type checker
        raise InvalidArgument(f"filter must be a dict of field to value, not {shown(given)}")
    found: list[Condition | Group] = []
    for name, wanted in given.items():
        if name in GROUPS:
            found.append(_group(name, wanted))
            continue
        _scalar("a field's name", _field(name))
        if isinstance(wanted, Mapping):
            found += [_operation(name, op, value) for op, value in wanted.items()]
        elif isinstance(wanted, (list, tuple, set, frozenset)):
            found.append(Condition(name, "in", tuple(_scalar(name, v) for v in wanted)))
        else:
            found.append(Condition(name, "eq", _scalar(name, wanted)))
    return tuple(found)


def _field(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"filter: field names must be text, not {shown(name)}")
    return name


def _group(op: str, given: Any) -> Group:
    if op == "not" and isinstance(given, Mapping) and given:
        return Group(op, parse_filter(given))
    parts = given if op != "not" and isinstance(given, (list, tuple)) else ()
    if not parts or not all(isinstance(part, Mapping) for part in parts):
        needs = "a filter" if op == "not" else "a list of filters"
        raise InvalidArgument(f"filter: {op!r} needs {needs}, not {shown(given)}")
    parsed = [parse_filter(part) for part in parts]
    return Group(op, tuple(p[0] if len(p) == 1 else Group("and", p) for p in parsed))


def _operation(name: str, op: Any, value: Any) -> Condition | Group:
    if op in ("eq", "ne"):
        return Condition(name, op, _scalar(name, value))
    if op in ("in", "not_in") and isinstance(value, (list, tuple, set, frozenset)):
        one_of = Condition(name, "in", tuple(_scalar(name, v) for v in value))
        return one_of if op == "in" else Group("not", (one_of,))
    if op == "exists" and isinstance(value, bool):
        return Condition(name, "ne" if value else "eq", None)
    if op in RANGES or op == "contains":
        value = _scalar(name, value)
        if value is None or isinstance(value, bool) or (op == "contains" and is_number(value)):
            needs = "text" if op == "contains" else "a number, a date or text"
            raise InvalidArgument(f"filter: {shown(name)}.{op} needs {needs}, not {shown(value)}")
        return Condition(name, op, value)
    if op in ("in", "not_in", "exists"):
        needs = "True or False" if op == "exists" else "a list of values"
        raise InvalidArgument(f"filter: {shown(name)}.{op} needs {needs}, not {shown(value)}")
    known = ", ".join(("eq", "ne", "in", "not_in", "exists", "contains", *RANGES))
    raise InvalidArgument(
        f"filter: {shown(name)}: unknown operator {shown(op)}; choose one of {known}"
    )


def _scalar(name: str, value: Any) -> Scalar:
    if isinstance(value, date):
        return value.isoformat()
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
        "use text, a number, a date, a boolean or None"
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


def matches(metadata: Mapping[str, Any], conditions: Iterable[Condition | Group]) -> bool:
    """Whether metadata passes all conditions: the reference implementation, for engines that cannot
    evaluate a condition themselves."""
    return all(_fits(metadata, part) for part in conditions)


def _fits(metadata: Mapping[str, Any], part: Condition | Group) -> bool:
    if isinstance(part, Condition):
        return _passes(metadata.get(part.field), part)
    if part.op == "or":
        return any(_fits(metadata, one) for one in part.parts)
    return matches(metadata, part.parts) is (part.op == "and")


def fits_all(conditions: Conditions) -> bool:
    """Whether a filter lets every record pass because of how it is made, such as `{"and": [{}]}`."""
    return _always(Group("and", conditions)) is True


def _always(part: Condition | Group) -> bool | None:
    """True: every record fits; False: none does; None: that depends on the record."""
    if isinstance(part, Condition):
        return False if part.op == "in" and not part.value else None
    found = {_always(one) for one in part.parts}
    if part.op == "or":
        return True if True in found else None if None in found else False
    every = False if False in found else None if None in found else True
    return (not every) if part.op == "not" and every is not None else every


def _passes(value: Any, c: Condition) -> bool:
    if c.op in _COMPARE:
        return any(
            is_number(v) == is_number(c.value) and _COMPARE[c.op](v, c.value)
            for v in comparable(value)
            if v is not None and not isinstance(v, bool)
        )
    if c.op == "contains":
        return any(isinstance(v, str) and c.value in v for v in comparable(value))
    equal = any(_key(v) in c.keys for v in comparable(value))
    if value is None:
        equal = None in c.value if c.op == "in" else c.value is None
    return not equal if c.op == "ne" else equal


def _key(value: Scalar) -> Key:
    """Equal for equal values: numbers of any type; other values only of the same type."""
    return (float if is_number(value) else type(value), value)


def group_key(value: Any) -> Hashable:
    """Equal for values that filters find equal; lists and objects are compared by their contents."""
    if isinstance(value, list):
        return (list, tuple(map(group_key, value)))
    if isinstance(value, dict):
        return (dict, frozenset((name, group_key(inner)) for name, inner in value.items()))
    return _key(value)


def comparable(value: Any) -> list[Scalar]:
    """The scalars of a field: its value or, if that is a list, its items."""
    found = value if isinstance(value, list) else [value]
    return [v for v in found if not isinstance(v, list | dict)]


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
