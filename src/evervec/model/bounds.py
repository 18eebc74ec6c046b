"""How large a part of an input may be: a setting, named in the error that refuses more.

Whatever a client sends is measured against one of these before work is done for it, so that
the work for one request has an upper limit on every engine.
"""

from __future__ import annotations

import reprlib
from typing import Any

from evervec.errors import InvalidArgument, InvalidRecord
from evervec.settings import Settings

BIGGEST = (1 << 63) - 1
"""the largest whole number that every engine has"""
_MOST_LISTED = (1 << 31) - 1


def check_bound(
    settings: Settings,
    name: str,
    size: int,
    what: str,
    error: type[InvalidArgument | InvalidRecord] = InvalidArgument,
) -> None:
    """Raise `error` if a size is over the setting `name`; `what` says what has that size, as in
    `"query: has {} characters"`."""
    most = getattr(settings, name)
    if size > most:
        raise error(f"{what.format(f'{size:,}')}; at most {most:,} are allowed ({name})")


def check_whole(what: str, value: Any, least: int, most: int) -> int:
    """A whole number that engines can take; `InvalidArgument` if it is none, or out of range."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidArgument(
            f"{what} must be a whole number from {least} to {most}, not {shown(value)}"
        )
    return value


def check_limit(limit: Any) -> int:
    """How many of a list are asked for."""
    return check_whole("limit", limit, 1, _MOST_LISTED)


def shown(value: Any) -> str:
    """A value as an error names it, cut short."""
    try:
        return _SHORT.repr(value)
    except ValueError:  # a number of more digits than Python writes
        return f"a {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
