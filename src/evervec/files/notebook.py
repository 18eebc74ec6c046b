"""Notebooks: the Markdown and code of their cells. A form feed stands between two cells."""

from __future__ import annotations

import json
from typing import Any

from evervec.files.document import Document, Unreadable
from evervec.files.markup import read_markdown

_WRITTEN = ("markdown", "raw", "heading")


def read_notebook(text: str) -> Document:
    """The cells in order, without their outputs."""
    try:
        book = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("not a notebook: its JSON cannot be read") from error
    cells = [_cell_text(cell) for cell in _cells(book)]
    title = next((t for cell in cells if (t := read_markdown(cell).title)), None)
    return Document("\n\f".join(cells), title)


def _cells(book: Any) -> list[dict[str, Any]]:
    """The cells of this format, and of the one before it, which has them in worksheets."""
    found = book.get("cells") if isinstance(book, dict) else None
    if found is None and isinstance(book, dict) and isinstance(book.get("worksheets"), list):
        sheets = [sheet for sheet in book["worksheets"] if isinstance(sheet, dict)]
        found = [cell for sheet in sheets for cell in sheet.get("cells") or ()]
    if not isinstance(found, list):
        raise Unreadable("not a notebook: it has no cells")
    return [cell for cell in found if isinstance(cell, dict)]


def _cell_text(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    lines = source if isinstance(source, list) else [source]
    text = "".join(line for line in lines if isinstance(line, str)).replace("\f", "\n").strip()
    if not text or cell.get("cell_type") in _WRITTEN:
        return text + "\n"
    return f"```\n{text}\n```\n"
