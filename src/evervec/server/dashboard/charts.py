"""Charts as SVG, made on the server: they need no script, and print and scale as text does.

Shapes get their colours from the style sheet by class, because the page's policy allows no inline
styles. A chart has a title that says in words what it shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from evervec.server.dashboard.words import NOTHING, compact, number

_WIDTH, _HEIGHT = 640, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 10, 32
_LINES = 4


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one line or layer; None where nothing is known."""

    name: str
    values: Sequence[float | None]
    tone: str = "a"
    """its class in the style sheet: a, b, c, bad"""


def lines(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    shown: Callable[[float], str] = number,
) -> Markup:
    """Lines over time."""
    return _chart(title, labels, series, shown, _polylines)


def bars(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    shown: Callable[[float], str] = number,
) -> Markup:
    """Stacked bars over time."""
    return _chart(title, labels, series, shown, _stacked, stacked=True)


def spark(title: str, values: Sequence[float], tone: str = "a") -> Markup:
    """A line of bars as small as a word."""
    most = max(values, default=0) or 1
    width = 100 / max(1, len(values))
    shapes = [
        Markup('<rect class="{}" x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}"/>').format(
            tone, n * width, 20 - 20 * value / most, max(0.5, width - 0.8), 20 * value / most
        )
        for n, value in enumerate(values)
        if value
    ]
    return Markup(
        '<svg class="spark" viewBox="0 0 100 20" preserveAspectRatio="none" role="img">'
        "<title>{}</title>{}</svg>"
    ).format(title, Markup("").join(shapes))


def progress(title: str, part: float, whole: float) -> Markup:
    """A bar that fills."""
    value = 0.0 if not whole else min(1.0, part / whole)
    return Markup(
        '<svg class="progress" viewBox="0 0 100 6" preserveAspectRatio="none" role="img">'
        '<title>{}</title><rect class="track" width="100" height="6"/>'
        '<rect class="fill" width="{:.2f}" height="6"/></svg>'
    ).format(title, 100 * value)


def parts(title: str, shares: Sequence[tuple[str, float, str]]) -> Markup:
    """A bar of parts that add up: for each its name, its size from 0 to 1 and its tone."""
    at, shapes = 0.0, []
    for name, size, tone in shares:
        width = max(0.0, min(1.0 - at, size))
        shapes.append(
            Markup(
                '<rect class="{}" x="{:.3f}" width="{:.3f}" height="8"><title>{}</title></rect>'
            ).format(tone, 100 * at, 100 * width, f"{name} {size:.3f}")
        )
        at += width
    return Markup(
        '<svg class="parts" viewBox="0 0 100 8" preserveAspectRatio="none" role="img">'
        '<title>{}</title><rect class="track" width="100" height="8"/>{}</svg>'
    ).format(title, Markup("").join(shapes))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Where the values of a chart are drawn."""

    most: float
    points: int

    def x(self, n: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * n / max(1, self.points)

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.most


def _chart(
    title: str,
    labels: Sequence[str],
    series: Sequence[Series],
    shown: Callable[[float], str],
    draw: Callable[[_Frame, Sequence[Series]], Markup],
    *,
    stacked: bool = False,
) -> Markup:
    columns = list(zip(*(each.values for each in series), strict=True)) if series else []
    together = sum if stacked else max
    tops = [together([v for v in column if v is not None] or [0.0]) for column in columns]
    frame = _Frame(_round_up(max(tops, default=0.0), whole=shown is number), len(labels))
    return Markup(
        '<figure class="chart"><svg viewBox="0 0 {} {}" role="img"><title>{}</title>{}{}{}</svg>'
        "{}</figure>"
    ).format(
        _WIDTH, _HEIGHT, title, _grid(frame, labels, shown), draw(frame, series),
        _tips(frame, labels, series, shown), _legend(title, series),
    )  # fmt: skip


def _grid(frame: _Frame, labels: Sequence[str], shown: Callable[[float], str]) -> Markup:
    rows = [frame.most * n / _LINES for n in range(_LINES + 1)]
    tick = compact if shown is number else shown
    found = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
            '<text class="tick" x="{}" y="{:.1f}" text-anchor="end">{}</text>'
        ).format(_LEFT, _WIDTH - _RIGHT, frame.y(v), frame.y(v), _LEFT - 6, frame.y(v) + 4, tick(v))
        for v in rows
    ]
    step = max(1, math.ceil(len(labels) / 6))
    found += [
        Markup('<text class="tick" x="{:.1f}" y="{}" text-anchor="middle">{}</text>').format(
            frame.x(n + 0.5), _HEIGHT - 6, label
        )
        for n, label in enumerate(labels)
        if n % step == 0
    ]
    return Markup("").join(found)


def _polylines(frame: _Frame, series: Sequence[Series]) -> Markup:
    found = []
    for each in series:
        run: list[str] = []
        for n, value in [*enumerate(each.values), (0, None)]:
            if value is not None:
                run.append(f"{frame.x(n + 0.5):.1f},{frame.y(value):.1f}")
            elif len(run) == 1:
                x, _, y = run.pop().partition(",")
                found.append(
                    Markup('<circle class="{}" cx="{}" cy="{}" r="3.5"/>').format(each.tone, x, y)
                )
            elif run:
                points = " ".join(run)
                found.append(
                    Markup('<polyline class="line {}" points="{}"/>').format(each.tone, points)
                )
                run = []
    return Markup("").join(found)


def _stacked(frame: _Frame, series: Sequence[Series]) -> Markup:
    found, width = [], max(0.8, (frame.x(1) - frame.x(0)) * 0.8)
    for n in range(frame.points):
        at = 0.0
        for each in series:
            value = each.values[n] or 0.0
            if value:
                top = frame.y(at + value)
                found.append(
                    Markup(
                        '<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"/>'
                    ).format(each.tone, frame.x(n + 0.1), top, width, frame.y(at) - top)
                )
            at += value
    return Markup("").join(found)


def _tips(
    frame: _Frame, labels: Sequence[str], series: Sequence[Series], shown: Callable[[float], str]
) -> Markup:
    """What a pointer shows over each column."""

    def tip(n: int) -> str:
        values = ((each.name, each.values[n]) for each in series)
        said = (f"{name}: {NOTHING if v is None else shown(v)}" for name, v in values)
        return "\n".join([labels[n], *said])

    width, height = frame.x(1) - frame.x(0), _HEIGHT - _TOP - _BOTTOM
    return Markup("").join(
        Markup(
            '<rect class="tip" x="{:.1f}" y="{}" width="{:.1f}" height="{}"><title>{}</title></rect>'
        ).format(frame.x(n), _TOP, width, height, tip(n))
        for n in range(len(labels))
    )


def _legend(title: str, series: Sequence[Series]) -> Markup:
    named = Markup("").join(
        Markup('<span class="key {}">{}</span>').format(each.tone, each.name) for each in series
    )
    return Markup("<figcaption><span>{}</span>{}</figcaption>").format(title, named)


def _round_up(value: float, whole: bool = False) -> float:
    """The next number whose grid has round numbers, or whole ones for what is counted."""
    if value <= 0:
        return float(_LINES) if whole else 1.0
    step = max(value / _LINES, 1.0) if whole else value / _LINES
    size = 10.0 ** math.floor(math.log10(step))
    steps = (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(
        _LINES * size * each
        for each in steps
        if size * each >= step * (1 - 1e-9) and not (whole and (size * each) % 1)
    )
