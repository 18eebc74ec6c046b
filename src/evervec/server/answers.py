"""Responses from values of the library: JSON, pages with cursors, entity tags, waits."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel
from starlette.responses import Response

from evervec.server.problems import Problem
from evervec.server.schemas.base import LONGEST_WAIT

LINES = "application/x-ndjson"
"""media type of NDJSON responses"""
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.IGNORECASE)
_TAG = re.compile(r'"(\d{1,19})"')


def answer(
    shape: type[BaseModel], value: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """A response with a value of the library (or a dict) in its public shape."""
    body = shape.model_validate(value).model_dump_json(exclude_unset=True)
    return Response(body, status, headers, "application/json")


def make_cursor(*place: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")


def read_cursor(cursor: str | None, *kinds: type) -> tuple[Any, ...] | None:
    """The position in a cursor; raises a `Problem` if it is malformed. The library checks its
    values."""
    if cursor is None:
        return None
    try:
        padded = cursor.encode() + b"=" * (-len(cursor) % 4)
        place = json.loads(base64.b64decode(padded, b"-_", validate=True))
        if isinstance(place, list) and [type(part) for part in place] == list(kinds):
            return tuple(place)
    except (ValueError, binascii.Error, RecursionError):
        pass
    raise Problem(422, "invalid cursor: use the one from the previous page")


def asked_wait(prefer: str | None) -> float | None:
    """The seconds of `Prefer: wait=30`; other preferences are ignored (RFC 7240)."""
    found = _WAIT.search(prefer or "")
    return min(float(found[1]), LONGEST_WAIT) if found else None


def entity_tag(seq: int) -> str:
    return f'"{seq}"'


def asked_seq(if_match: str | None) -> int | None:
    """The seq in `If-Match`; None: any."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _TAG.fullmatch(if_match.strip())
    if found is None or int(found[1]) >= 1 << 63:
        raise Problem(412, f"If-Match must be one ETag of this record, not {if_match[:40]!r}")
    return int(found[1])
