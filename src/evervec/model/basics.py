"""Helpers for values: fast constructors of frozen dataclasses, conversions of time, cursors."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from dataclasses import field, fields, make_dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

T = TypeVar("T")

_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(s|min|m|h|d)")
_UNITS = {"s": 1, "min": 60, "m": 60, "h": 3600, "d": 86400}


def quick_maker(frozen: type[T]) -> Callable[..., T]:
    """A positional constructor for values that are created by the thousand.

    A frozen dataclass sets each of its fields by a call. A mutable twin with the same slots does
    not. Creating the twin and changing its class to the frozen one takes a tenth of the time.
    """
    described = [(f.name, Any, field(default=f.default)) for f in fields(frozen)]  # type: ignore[arg-type]
    twin = make_dataclass(frozen.__name__, described, slots=True)

    def make(*values: Any) -> T:
        made: Any = twin(*values)
        made.__class__ = frozen
        return made  # type: ignore[no-any-return]

    return make


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def day_of(seconds: float) -> str:
    """The day (UTC) of a moment, as `2027-01-15`."""
    return moment(seconds).date().isoformat()


def next_day(seconds: float) -> float:
    """When the day (UTC) after a moment begins."""
    today = moment(seconds).replace(hour=0, minute=0, second=0, microsecond=0)
    return (today + timedelta(days=1)).timestamp()


def as_datetime(seconds: float | None) -> datetime | None:
    return None if seconds is None else moment(seconds)


def as_seconds(moment: datetime | float) -> float:
    """Seconds since the epoch; a datetime without a time zone counts as UTC."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return float(moment)


def read_duration(text: str) -> timedelta | None:
    """A duration such as `30s`, `10min`, `2h` or `7d`; None if it is not written so."""
    found = _DURATION.fullmatch(text)
    return timedelta(seconds=float(found[1]) * _UNITS[found[2]]) if found else None


def make_cursor(*place: Any) -> str:
    """A place in a list, as text for a URL. `evervec.server.answers` reads it."""
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
