"""Quoting of names and texts in SQL, and the names of a kind's triggers."""

from __future__ import annotations

from hashlib import blake2b


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def prefix(kind: str) -> str:
    """The prefix of a kind's trigger names: a hash, because a kind may be any text and trigger
    names are short."""
    return f"attached_{blake2b(kind.encode(), digest_size=6).hexdigest()}"
