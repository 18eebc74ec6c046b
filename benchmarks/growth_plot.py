"""Draws the results of the growth benchmark as an SVG of small charts, readable on light and dark
pages. Both axes are logarithmic: a line that rises with the size costs more. Time is that of
processors, which other work on the machine distorts little; the table has p50 and p99 as well."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

_NAMES = {
    "sqlite": "evervec: SQLite",
    "duckdb": "evervec: DuckDB",
    "postgres": "evervec: PostgreSQL, pgvector",
    "sqlite+lancedb": "evervec: SQLite, LanceDB",
    "sqlite+qdrant": "evervec: SQLite, Qdrant edge",
    "pgvector": "pgvector alone",
    "lancedb": "LanceDB alone",
    "qdrant": "Qdrant edge alone",
    "chroma": "Chroma",
}
_HUES = {
    "sqlite": 0, "duckdb": 1, "postgres": 2, "sqlite+lancedb": 3, "sqlite+qdrant": 4,
    "pgvector": 2, "lancedb": 3, "qdrant": 4, "chroma": 5,
}  # fmt: skip
"""an engine called directly has the colour of evervec on it, and a dashed line"""
_LIGHT = ("#0969da", "#8250df", "#1a7f37", "#bc4c00", "#cf222e", "#57606a")
_DARK = ("#58a6ff", "#bc8cff", "#3fb950", "#f0883e", "#ff7b72", "#9198a1")
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 290, 210, 52, 14, 34, 30
_COLUMNS = 4
Result = Mapping[str, Any]
Value = Callable[[Result], float | None]


def _of(key: str) -> Value:
    return lambda one: one.get(key)


_CHARTS = {
    "A record, µs": _of("record_cpu_us"),
    "Semantic search, ms": _of("semantic_cpu_ms"),
    "Semantic, 1% pass a filter, ms": _of("filtered_cpu_ms"),
    "Text search, ms": _of("text_cpu_ms"),
    "Hybrid search, ms": _of("hybrid_cpu_ms"),
    "Memory, MB": _of("memory_mb"),
    "Disk, MB": _of("disk_mb"),
}


def draw(kept: Mapping[str, Mapping[str, Result]], path: Path) -> None:
    names = [name for name in _NAMES if kept.get(name)]
    rows = -(-(len(_CHARTS) + 1) // _COLUMNS)
    parts = [_head(_COLUMNS * _WIDTH, rows * _HEIGHT)]
    for place, (title, value) in enumerate(_CHARTS.items()):
        series = {
            name: sorted(
                (int(size), found)
                for size, one in kept[name].items()
                if (found := value(one)) is not None and found > 0
            )
            for name in names
        }
        parts += _placed(place, _chart(title, {n: s for n, s in series.items() if s}))
    parts += _placed(len(_CHARTS), _legend(names))
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*parts, "</svg>"]) + "\n", encoding="utf-8")


def _head(width: int, height: int) -> str:
    def colours(hues: tuple[str, ...], ink: str, rule: str) -> str:
        made = [f".c{n} {{ stroke: {hue}; fill: {hue} }}" for n, hue in enumerate(hues)]
        return " ".join([*made, f"text {{ fill: {ink} }} .rule {{ stroke: {rule} }}"])

    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" '
        'aria-label="Cost of records and searches by the size of a collection">\n'
        "<style>\n"
        "text { font: 12px system-ui, sans-serif } .title { font-weight: 600 } "
        ".line { fill: none; stroke-width: 2 } .peer { stroke-dasharray: 5 4; stroke-width: 1.5 } "
        ".rule { stroke-width: 1 } .end { text-anchor: end } .mid { text-anchor: middle }\n"
        f"{colours(_LIGHT, '#1f2328', '#d1d9e0')}\n"
        f"@media (prefers-color-scheme: dark) {{ {colours(_DARK, '#e6edf3', '#3d444d')} }}\n"
        "</style>"
    )


def _placed(place: int, parts: Iterator[str]) -> list[str]:
    x, y = place % _COLUMNS * _WIDTH, place // _COLUMNS * _HEIGHT
    return [f'<g transform="translate({x} {y})">', *parts, "</g>"]


def _chart(title: str, series: Mapping[str, list[tuple[int, float]]]) -> Iterator[str]:
    yield f'<text class="title" x="{_LEFT}" y="20">{escape(title)}</text>'
    points = [point for line in series.values() for point in line]
    if not points:
        return
    across = _Scale([size for size, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = _Scale([value for _, value in points], _HEIGHT - _BOTTOM, _TOP, whole=True)
    for value in up.decades():
        y = up(value)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="end" x="{_LEFT - 6}" y="{y + 4:.1f}">{_plain(value)}</text>'
    for size in sorted({size for size, _ in points}):
        yield (
            f'<text class="mid" x="{across(size):.1f}" y="{_HEIGHT - _BOTTOM + 18}">'
            f"{_plain(size)}</text>"
        )
    for name, line in series.items():
        places = [(across(size), up(value)) for size, value in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        yield f'<polyline class="line {_class(name)}" points="{path}" style="fill: none"/>'
        for (x, y), (size, value) in zip(places, line, strict=True):
            told = f"{_NAMES[name]}, {_plain(size)}: {value:,.3g}"
            yield (
                f'<circle class="{_class(name)}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
                f"<title>{escape(told)}</title></circle>"
            )


def _legend(names: list[str]) -> Iterator[str]:
    for row, name in enumerate(names):
        y = _TOP + 19 * row
        yield f'<line class="line {_class(name)}" x1="24" x2="58" y1="{y}" y2="{y}"/>'
        yield f'<text x="68" y="{y + 4}">{escape(_NAMES[name])}</text>'


def _class(name: str) -> str:
    ours = name.startswith(("sqlite", "duckdb", "postgres"))
    return f"c{_HUES[name]}{'' if ours else ' peer'}"


class _Scale:
    """A logarithmic axis; `whole`: of whole decades."""

    def __init__(
        self, values: Sequence[float], begin: float, end: float, *, whole: bool = False
    ) -> None:
        low, high = math.log10(min(values)), math.log10(max(values))
        self._low = math.floor(low) if whole else low
        self._high = max(math.ceil(high) if whole else high, self._low + 1)
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._begin + share * (self._end - self._begin)

    def decades(self) -> Iterator[float]:
        return (10.0**power for power in range(math.ceil(self._low), math.floor(self._high) + 1))


def _plain(value: float) -> str:
    for letter, size in (("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"
