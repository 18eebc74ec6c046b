"""Lists of results that become data frames, and that show themselves as short tables."""

from __future__ import annotations

from html import escape
from typing import Any, ClassVar, TypeVar

from evervec.runtime.packages import load_arrow, load_package
from evervec.telemetry.visible import visible_line

T = TypeVar("T")

_ROWS = 10
"""rows of a table that is shown; more would flood a terminal"""
_LINE, _CELL = 60, 200
"""characters of a text that are shown on a terminal, and in a notebook"""
_NAME = 36
"""characters of a kind or an id; a UUID has 36"""
_TIME, _FLOAT = "datetime64[us, UTC]", "float64"
_TYPES = {
    "seq": "int64", "weight": _FLOAT, "similarity": _FLOAT, "relevance": _FLOAT,
    "created_at": _TIME, "updated_at": _TIME, "embedded": "bool",
}  # fmt: skip
"""of the columns that are not text, as pandas names them; the same for an empty list"""
_ANY = frozenset({"metadata", "row", "explanation", "group"})
"""columns whose values may be of any type: JSON in Arrow, whose columns have one type"""


class Results(list[T]):
    """A list of records or hits."""

    _noun: ClassVar[str]
    _columns: ClassVar[tuple[str, ...]]
    _optional: ClassVar[tuple[str, ...]] = ()
    """columns that are left out if no result has a value"""
    _shown: ClassVar[tuple[str, ...]]
    """columns of the short table, before the text"""

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, one row for each result. Metadata is JSON text."""
        pa = load_arrow("to_arrow")
        types = {_TIME: pa.timestamp("us", "UTC"), _FLOAT: pa.float64(), "int64": pa.int64(),
                 "bool": pa.bool_()}  # fmt: skip
        columns = {
            name: pa.array(
                [_as_json(value) for value in values] if name in _ANY else values,
                types[_TYPES[name]] if name in _TYPES else pa.string(),
            )
            for name, values in self._values().items()
        }
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, one row for each result. Metadata is a column of dicts."""
        pandas = load_package("pandas", "to_pandas", "pandas")
        columns = self._values()
        frame = pandas.DataFrame(columns, dtype=None if self else object)
        return frame.astype({name: kind for name, kind in _TYPES.items() if name in columns})

    def _values(self) -> dict[str, list[Any]]:
        columns = {
            name: [getattr(result, name) for result in self]
            for name in (*self._columns, *self._optional)
        }
        for name in self._optional:
            if all(value is None for value in columns[name]):
                del columns[name]
        return columns

    def _summary(self) -> str:
        return f"{len(self):,} {self._noun}{'' if len(self) == 1 else 's'}"

    def _table(self, longest: int) -> list[list[str]]:
        """The cells of the first results, below their headings."""
        rows = [[*self._shown, "text"]]
        for result in self[:_ROWS]:
            cells = [_cell(getattr(result, name), _NAME) for name in self._shown]
            title, text = getattr(result, "title", None), getattr(result, "text", "")
            # a long text is cut before its spaces are joined
            parts = [part[: 4 * longest] for part in (title, text) if part]
            words = " ".join(": ".join(parts).split())
            rows.append([*cells, _cell(words, longest)])
        return rows

    def __repr__(self) -> str:
        rows = self._table(_LINE)
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(map(str.ljust, row, widths)).rstrip() for row in (rows if len(self) else ())
        ]
        more = [f"… {len(self) - _ROWS:,} more"] if len(self) > _ROWS else []
        return "\n".join([_cell(self._summary(), _CELL), *lines, *more])

    def _repr_html_(self) -> str:
        head, *rows = self._table(_CELL)
        more = f"<p>… {len(self) - _ROWS:,} more</p>" if len(self) > _ROWS else ""
        body = "".join(_html_row("td", row) for row in rows)
        table = f"<table><thead>{_html_row('th', head)}</thead><tbody>{body}</tbody></table>"
        return f"<p>{escape(_cell(self._summary(), _CELL))}</p>{table if rows else ''}{more}"


def _html_row(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: Any, longest: int) -> str:
    """A value on one line, clipped, with control characters escaped."""
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    line = visible_line(text[: longest + 1])
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _as_json(value: Any) -> str | None:
    if value is None:
        return None
    from pydantic_core import to_json

    # rows of attached tables may have bytes, dates and types of the driver
    return to_json(
        value, bytes_mode="base64", inf_nan_mode="constants", fallback=str
    ).decode()  # fmt: skip
