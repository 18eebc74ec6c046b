"""Filters by the fields of a model: their names and values become those that the index has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import Model

from evervec.errors import InvalidArgument
from evervec.integrations.django.declaration import Declaration
from evervec.integrations.django.keys import stored_value, target_of
from evervec.model.filters import GROUPS
from evervec.tables.values import as_json

_AS_GIVEN = ("exists", "contains")
"""operators whose values are no values of the field"""


def filter_of(given: Any, model: Any, declaration: Declaration, connection: Any) -> Any:
    """The filter of evervec for a filter by fields, which may also be named by their columns.
    Raises `InvalidArgument` for a field that the declaration does not have as metadata."""
    named = [model._meta.get_field(name) for name in declaration.metadata]
    fields = {name: f for f in named for name in (f.column, f.attname, f.name)}
    return _part(given, fields, connection)


def _part(given: Any, fields: Mapping[str, Any], connection: Any) -> Any:
    if isinstance(given, list | tuple):
        return [_part(part, fields, connection) for part in given]
    if not isinstance(given, Mapping):  # the search says what is wrong with it
        return given
    found: dict[str, Any] = {}
    for name, wanted in given.items():
        if name in GROUPS:
            found[name] = _part(wanted, fields, connection)
            continue
        field = fields.get(name)
        if field is None:
            known = ", ".join(sorted({field.name for field in fields.values()})) or "none"
            raise InvalidArgument(
                f"filter: {name!r} is not in the metadata of the SearchIndex, which has: {known}"
            )
        if field.column in found:
            raise InvalidArgument(f"filter: the field {field.name!r} is named twice")
        found[field.column] = _test(wanted, field, connection)
    return found


def _test(wanted: Any, field: Any, connection: Any) -> Any:
    if isinstance(wanted, Mapping):
        return {
            op: value if op in _AS_GIVEN else _test(value, field, connection)
            for op, value in wanted.items()
        }
    if isinstance(wanted, list | tuple | set | frozenset):
        return [_test(value, field, connection) for value in wanted]
    if isinstance(wanted, Model):
        wanted = getattr(wanted, target_of(field).attname)
    try:
        return as_json(stored_value(field, wanted, connection))
    except (ValidationError, ValueError, TypeError, ArithmeticError) as error:
        raise InvalidArgument(f"filter: {field.name!r}: {error}") from None
