"""Lists that a page shows, which can be downloaded as NDJSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from typing import Any

from starlette.responses import Response

from evervec.model.deadlines import check

_TYPES = {"ndjson": "application/x-ndjson", "csv": "text/csv; charset=utf-8"}
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001
"""what a spreadsheet may take for the beginning of a formula"""


@dataclass(frozen=True, slots=True)
class Table:
    """The rows of a page."""

    name: str
    """of the file"""
    rows: Sequence[Any]
    """dataclasses or mappings"""
    hidden: frozenset[str] = frozenset()
    """fields that must not leave the service, such as a job's token"""
    more: str | None = None
    """the address of the next page"""

    def records(self) -> Iterator[dict[str, Any]]:
        for row in self.rows:
            check()
            yield {name: value for name, value in _fields(row) if name not in self.hidden}


def _fields(row: Any) -> Iterable[tuple[str, Any]]:
    """Names and values, which are not copied: metadata may be large."""
    if is_dataclass(row) and not isinstance(row, type):
        return ((each.name, getattr(row, each.name)) for each in fields(row))
    found: Mapping[str, Any] = row
    return found.items()


def download(table: Table, format: str) -> Response:
    """The rows as a file, made within the request's deadline: call it in a thread."""
    records = table.records()
    body = _ndjson(records) if format == "ndjson" else _csv(list(records))
    headers = {"Content-Disposition": f'attachment; filename="{table.name}.{format}"'}
    if table.more:
        headers["Link"] = f'<{table.more}>; rel="next"'
    return Response(body, media_type=_TYPES[format], headers=headers)


def _ndjson(records: Iterable[Mapping[str, Any]]) -> str:
    lines = (json.dumps(record, ensure_ascii=False, default=_plain) for record in records)
    return "".join(f"{line}\n" for line in lines)


def _csv(records: Sequence[Mapping[str, Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    if names := list(dict.fromkeys(name for record in records for name in record)):
        writer.writerow(map(_cell, names))
        for record in records:
            check()
            writer.writerow([_cell(record.get(name)) for name in names])
    return out.getvalue()


def _cell(value: Any) -> Any:
    """A value for a spreadsheet, which must not take it for a formula."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return value.isoformat()
    text = value if isinstance(value, str) else json.dumps(value, default=_plain)
    return f"'{text}" if text.startswith(_FORMULA) else text


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return dict(_fields(value))
    return value.isoformat() if isinstance(value, datetime) else str(value)
