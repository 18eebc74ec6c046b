"""Converts a column's value to text to embed and to JSON to filter by: the same on every
machine."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from datetime import time as clock_time
from decimal import Decimal
from typing import Any


def as_words(value: Any) -> str:
    """A column's value as readable text."""
    if value is None:
        return ""
    if isinstance(value, bytes | memoryview):
        return _clean(bytes(value).decode("utf-8", "replace"))
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(as_json(value), ensure_ascii=False)
    return _clean(str(as_json(value) if isinstance(value, date | clock_time) else value))


def as_json(value: Any) -> Any:
    """A column's value as JSON."""
    if isinstance(value, str):
        return _clean(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int | None):  # bool too
        return value
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    if isinstance(value, date | clock_time):
        return value.isoformat()
    if isinstance(value, Decimal):
        if not value.is_finite():
            return str(value)
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(k): as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(v) for v in value]
    return _clean(str(value))


def as_weight(value: Any) -> float | None:
    """A column's value as a weight, which is from 0 to 1."""
    return None if value is None else min(1.0, max(0.0, float(value)))


def as_moment(value: Any) -> datetime | float | None:
    """A column's value as a time: a date or timestamp, seconds since the epoch, or one of them as
    text; a time without a time zone counts as UTC."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = datetime.fromisoformat(value.strip())
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return float(value) if isinstance(value, Decimal) else value


def as_valid(value: Any) -> Any:
    """The value itself; in a text that is not valid UTF-8, the invalid parts are replaced."""
    if not isinstance(value, str) or value.isascii():
        return value
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _clean(text: str) -> str:
    """Replace characters that no store accepts."""
    return text.replace("\0", " ")
