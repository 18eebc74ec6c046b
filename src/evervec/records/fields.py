"""The types of the metadata fields that a kind wants to filter by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from evervec.errors import InvalidArgument
from evervec.model.bounds import shown
from evervec.stores.notes import FieldType

_NUMBERS = (int, float, Decimal)


def field_types(given: Any, model: Any) -> dict[str, FieldType]:
    """The type of each field: as given, else from the kind's model, else text. Raises
    `InvalidArgument` for anything but names, or names with their types."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidArgument(
            f"index_fields must be a list of names, or a dict of names and types, not {shown(given)}"
        )
    typed = given if isinstance(given, Mapping) else dict.fromkeys(given)
    for name, wanted in typed.items():
        if not isinstance(name, str) or not name or not _is_plain(name):
            raise InvalidArgument(f"index_fields: names must be text, not {shown(name)}")
        if wanted not in (None, str, bool, *_NUMBERS):
            raise InvalidArgument(
                f"index_fields: {name!r} must be of type str, int, float or bool, not {shown(wanted)}"
            )
    hints = _hints(model)
    return {name: _type_of(wanted or hints.get(name, str)) for name, wanted in typed.items()}


def _is_plain(name: str) -> bool:
    """Whether metadata can have a field of that name: no NUL, and no unpaired surrogate."""
    return "\0" not in name and name.encode("utf-8", "ignore").decode() == name


def _hints(model: Any) -> dict[str, Any]:
    try:
        return {} if model is None else get_type_hints(model)
    except (NameError, TypeError):  # a name that is not defined there, or not a class
        return {}


def _type_of(annotation: Any) -> FieldType:
    """Of an optional type or a list, the type of its values."""
    if get_origin(annotation) is Literal:
        return _type_of(type(get_args(annotation)[0]))
    if inner := [one for one in get_args(annotation) if one is not NoneType]:
        return _type_of(inner[0])
    if not isinstance(annotation, type) or not issubclass(annotation, (bool, *_NUMBERS)):
        return "text"
    return "boolean" if annotation is bool else "number"
