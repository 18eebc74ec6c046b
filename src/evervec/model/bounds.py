"""Limits on the size of inputs: each is a setting, named in the error that refuses more.

Every input of a client is checked against a limit before it is processed, so that the work for one
request is bounded on every engine.
"""

from __future__ import annotations

import reprlib
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord
from evervec.settings import Settings

BIGGEST = (1 << 63) - 1
"""the largest integer that every engine supports"""
MOST_VECTORS = 100
"""records whose vectors one request to the service may ask for"""
MOST_HISTORY = 1000
"""attempts of a record that are listed: the latest"""
_MOST_LISTED = (1 << 31) - 1


def check_bound(
    settings: Settings,
    name: str,
    size: int,
    what: str,
    error: type[InvalidArgument | InvalidRecord] = InvalidArgument,
) -> None:
    """Raise `error` if a size exceeds the setting `name`; `what` describes what has that size, as
    in `"query: has {} characters"`."""
    most = getattr(settings, name)
    if size > most:
        raise error(f"{what.format(f'{size:,}')}; at most {most:,} are allowed ({name})")


def check_whole(what: str, value: Any, least: int, most: int) -> int:
    """Check that a value is an integer in the range; raises `InvalidArgument` otherwise."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(
            f"{what} must be a whole number from {least} to {most}, not {shown(value)}"
        )
    return value


def check_seq(if_seq: Any) -> int | None:
    """Check the argument `if_seq`."""
    return None if if_seq is None else check_whole("if_seq", if_seq, 0, BIGGEST)


def check_limit(limit: Any) -> int:
    """Check the requested length of a list."""
    return check_whole("limit", limit, 1, _MOST_LISTED)


def shown(value: Any) -> str:
    """A value as error messages show it, shortened."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a number with more digits than Python converts to text
        return f"a {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
