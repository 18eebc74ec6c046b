"""Names and texts in SQL. With quotes doubled, no other character is special."""

from __future__ import annotations


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
