"""The documented meaning of filters, in plain Python and apart from evervec's own."""

from datetime import date
from typing import Any


def matches(metadata: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(_fits(metadata, name, test) for name, test in wanted.items())


def _fits(metadata: dict[str, Any], name: str, test: Any) -> bool:
    if name == "and":
        return all(matches(metadata, part) for part in test)
    if name == "or":
        return any(matches(metadata, part) for part in test)
    if name == "not":
        return not matches(metadata, test)
    if not isinstance(test, dict):
        test = {"in" if isinstance(test, list) else "eq": test}
    return all(_passes(metadata, name, op, value) for op, value in test.items())


def _passes(metadata: dict[str, Any], field: str, op: str, wanted: Any) -> bool:
    if op == "eq":
        return _equal(metadata, field, wanted)
    if op == "ne":
        return not _equal(metadata, field, wanted)
    if op == "in":
        return any(_equal(metadata, field, one) for one in wanted)
    if op == "not_in":
        return not any(_equal(metadata, field, one) for one in wanted)
    if op == "exists":
        return (metadata.get(field) is not None) is wanted
    if op == "contains":
        return any(isinstance(v, str) and wanted in v for v in _items(metadata, field))
    return _in_range(metadata, field, op, wanted)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _same(value: Any, wanted: Any) -> bool:
    if _number(value) and _number(wanted):
        return bool(value == wanted)
    return type(value) is type(wanted) and bool(value == wanted)


def _items(metadata: dict[str, Any], field: str) -> list[Any]:
    """The field's own value and, where it is a list, its items; those that can be compared."""
    value = metadata.get(field)
    found = [value, *value] if isinstance(value, list) else [value]
    return [v for v in found if not isinstance(v, (list, dict))]


def _equal(metadata: dict[str, Any], field: str, wanted: Any) -> bool:
    if wanted is None:
        return metadata.get(field) is None
    wanted = wanted.isoformat() if isinstance(wanted, date) else wanted
    return any(_same(v, wanted) for v in _items(metadata, field))


def _in_range(metadata: dict[str, Any], field: str, op: str, wanted: Any) -> bool:
    wanted = wanted.isoformat() if isinstance(wanted, date) else wanted

    def fits(value: Any) -> bool:
        if _number(value) != _number(wanted) or isinstance(value, bool) or value is None:
            return False
        order = {
            "gt": value > wanted, "gte": value >= wanted,
            "lt": value < wanted, "lte": value <= wanted,
        }  # fmt: skip
        return bool(order[op])

    return any(fits(v) for v in _items(metadata, field))
