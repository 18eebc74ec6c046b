"""Names and texts as SQL writes them, and what the triggers of a kind are called."""

from __future__ import annotations

from hashlib import blake2b


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def prefix(kind: str) -> str:
    """A kind may be any text; a trigger's name is short."""
    return f"attached_{blake2b(kind.encode(), digest_size=6).hexdigest()}"
