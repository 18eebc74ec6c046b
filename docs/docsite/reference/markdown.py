"""Markdown from values: tables, and text from docstrings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from inspect import cleandoc

_CODE = re.compile(r"(`[^`]*`)")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table, or nothing without rows."""
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if not lines:
        return ""
    return "\n".join([f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *lines, ""])


def code(text: object) -> str:
    return f"`{text}`"


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: angle brackets outside code are text, not HTML."""
    parts = _CODE.split(cleandoc(docstring or ""))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def sections(*parts: str) -> str:
    """Parts below each other, the empty ones left out."""
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
