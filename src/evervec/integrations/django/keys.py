"""Values of fields as their columns have them; primary keys as the ids of records, and back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from django.core.exceptions import ValidationError
from django.db.models import DecimalField, JSONField


def stored_key(model: Any, values: Sequence[Any], connection: Any) -> list[str]:
    """The values of a primary key as its columns have them, in texts."""
    fields = zip(model._meta.pk_fields, values, strict=True)
    return [str(target_of(field).get_db_prep_value(value, connection)) for field, value in fields]


def stored_value(field: Any, value: Any, connection: Any) -> Any:
    """A value as it is read from its column: on SQLite a UUID is text without dashes, a time one
    without a zone. Numbers and JSON are not written as they are read."""
    field = target_of(field)
    is_json = isinstance(field, JSONField) and connection.vendor == "postgresql"
    if value is None or is_json or isinstance(field, DecimalField):
        return value
    made = field.get_db_prep_value(value, connection)
    # for psycopg a number has a type of its own, which is written differently
    return int(made) if isinstance(made, int) and not isinstance(made, bool) else made


def target_of(field: Any) -> Any:
    """The field that has the value: of a foreign key, the one that it refers to."""
    while field.remote_field:
        field = field.target_field
    return field


def primary_key(model: Any, id: str) -> Any:
    """The primary key that a record's id stands for; None if it cannot be one."""
    fields = model._meta.pk_fields
    try:
        parts = [id] if len(fields) == 1 else json.loads(id)
        values = [field.to_python(part) for field, part in zip(fields, parts, strict=True)]
    except (ValidationError, ValueError, TypeError):
        return None
    return values[0] if len(values) == 1 else tuple(values)
