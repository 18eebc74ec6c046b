"""Debezium's change events: with or without a schema, of any connector.

An event says what happened to a row (`op`), the row before and after it, and in `source` where the
change is in the database's log. That place orders the changes of a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from evervec.errors import InvalidRecord
from evervec.integrations.streams.message import read_json

UNAVAILABLE = "__debezium_unavailable_value"
"""what PostgreSQL's connector writes for a large column that an update did not change"""
_IGNORED = frozenset({"m"})
"""a message in PostgreSQL's log that concerns no row"""
_LOG_FILE = re.compile(r"\.(\d+)$")
_MOST_FILES, _MOST_POSITION = 1 << 31, 1 << 32


class RowChange(NamedTuple):
    """What an event says about a row."""

    row: Mapping[str, Any] | None
    """the row as it is now; None: it was deleted"""
    known: Mapping[str, Any]
    """what identifies the row"""
    event: Mapping[str, Any]


def unwrapped(value: Any) -> Any:
    """A key or value without its schema."""
    if isinstance(value, Mapping) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def read_event(value: bytes) -> RowChange | None:
    """The change of a row; None for an event that concerns no row."""
    event = unwrapped(read_json(value))
    if event is None:  # a tombstone with a schema
        return None
    if not isinstance(event, Mapping) or not isinstance(event.get("op"), str):
        raise InvalidRecord(
            "not an event of Debezium, which has an op, before, after and source: follow plain "
            "JSON without --debezium"
        )
    op = event["op"]
    if op in _IGNORED:
        return None
    if op == "t":
        raise InvalidRecord(
            "the table was truncated: delete the records that it no longer has, or load it again "
            "into a new kind"
        )
    before, after = event.get("before"), event.get("after")
    if op == "d":
        return RowChange(None, before if isinstance(before, Mapping) else {}, event)
    if op not in ("c", "u", "r"):
        raise InvalidRecord(f"op: is {op[:20]!r}, not one of c, u, r, d, t")
    if not isinstance(after, Mapping):
        raise InvalidRecord(f"after: is missing from an event with op {op!r}")
    return RowChange(after, after, event)


def place_of(event: Mapping[str, Any], rule: str) -> int | None:
    """The place of a change in its database's log, by the rule `lsn` or `binlog`; with `auto` the
    connector decides. None: the connector has no place that orders changes and is one number."""
    source = event.get("source")
    source = source if isinstance(source, Mapping) else {}
    if rule == "auto":
        rule = _RULES.get(str(source.get("connector")), "offset")
    if rule == "lsn":
        lsn = source.get("lsn")
        if isinstance(lsn, bool) or not isinstance(lsn, int):
            raise InvalidRecord(
                "source.lsn: must be a whole number; it orders the changes of a row"
            )
        return lsn
    if rule == "binlog":
        return _binlog_place(source)
    return None


_RULES = {"postgresql": "lsn", "mysql": "binlog", "mariadb": "binlog"}


def _binlog_place(source: Mapping[str, Any]) -> int:
    """File and position as one number: the position has 32 bits, as in the log itself. The rows
    that one statement changes share the position of their event, in which each has its number. An
    event has at least a byte for each row, so the sum comes before the next event."""
    file, position, row = source.get("file"), source.get("pos"), source.get("row") or 0
    found = _LOG_FILE.search(str(file))
    if found is None or type(position) is not int or type(row) is not int:
        raise InvalidRecord("source: must have file and pos of the binary log, which order changes")
    number = int(found[1][:20])
    if number >= _MOST_FILES or row < 0 or not 0 <= (place := position + row) < _MOST_POSITION:
        raise InvalidRecord(
            f"source: {str(file)[:60]!r}, pos {position}, row {row} is no place in a binary log"
        )
    return number << 32 | place
