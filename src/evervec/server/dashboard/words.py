"""Numbers, times and sizes as people read them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from markupsafe import Markup, escape

from evervec.stores.base.jobs import MOST_COUNTED

NOTHING = "\u2013"
"""what is shown for no value"""
_COMPACT = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"))
"""from which number on, in which unit"""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def number(value: float | None, digits: int = 0) -> str:
    """`1,234`; a dash for nothing."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def compact(value: float) -> str:
    """A number as short as a tick of a chart needs it: `800`, `1,500`, `20k`, `1.5M`."""
    for least, size, unit in _COMPACT:
        if value >= least:
            return f"{value / size:.4g}{unit}"
    return number(value)


def upto(value: int, most: int = MOST_COUNTED) -> str:
    """A count that ends at a bound in engines that have to count: `99,999`, `100,000+`."""
    return f"{most:,}+" if value == most else number(value)


def count(value: int, noun: str, plural: str = "") -> str:
    """`1 job`, `1,204 jobs`."""
    return f"{value:,} {noun if value == 1 else plural or noun + 's'}"


def duration(seconds: float | None) -> str:
    """`850 ms`, `4.2 s`, `3 min 20 s`, `2 d 4 h`."""
    if seconds is None:
        return NOTHING
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), []
    for size, unit in _UNITS:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    return " ".join(parts[:2])


def brief(seconds: float) -> str:
    """A duration as short as a tick of a chart needs it: `250 ms`, `2.5 s`, `1.7 min`."""
    if seconds < 1:
        return f"{1000 * seconds:.3g} ms" if seconds else "0"
    size, unit = next((s, u) for s, u in _UNITS if seconds >= s)
    return f"{seconds / size:.2g} {unit}"


def lapse(seconds: float) -> str:
    """A duration to the millisecond, for steps of work: `0.4 ms`, `12 ms`, `1,204 ms`, `2 min`."""
    if seconds < 0.01:
        return f"{max(0.0, seconds) * 1000:.1f} ms"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else duration(seconds)


def money(value: float | None) -> str:
    """An amount in whatever the prices are set in."""
    if value is None:
        return NOTHING
    return f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def spoken_list(items: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    *first, end = list(items) or [NOTHING]
    return f"{', '.join(first)} {last} {end}" if first else end


def ago(when: datetime | None, now: datetime | None = None) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    if when is None:
        return "never"
    seconds = ((now or datetime.now(UTC)) - when).total_seconds()
    if abs(seconds) < 1:
        return "now"
    size, unit = next(((s, u) for s, u in _UNITS if abs(seconds) >= s), (1, "s"))
    shown = f"{int(abs(seconds) // size)} {unit}"
    return f"{shown} ago" if seconds > 0 else f"in {shown}"


def coded(text: str) -> Markup:
    """A text whose commands, in backticks, are set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is not closed
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
        for n, part in enumerate(parts)
    )


def moment(when: datetime | None) -> Markup:
    """A time element that says how long ago it was, with the exact time as its title."""
    if when is None:
        return escape(NOTHING)
    exact = when.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC", ago(when)
    )


def clock(when: datetime | None) -> Markup:
    """A time element with the exact time."""
    if when is None:
        return escape(NOTHING)
    exact = when.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S") + " UTC"
    )


def precise(when: datetime) -> Markup:
    """A time element with the exact time, to the millisecond."""
    exact = when.astimezone(UTC)
    return Markup('<time datetime="{}">{}</time>').format(
        exact.isoformat(), exact.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    )


def size(value: float | None) -> str:
    """`12 B`, `3.4 kB`, `1.2 GB`."""
    if value is None:
        return NOTHING
    for unit in ("B", "kB", "MB", "GB"):
        if abs(value) < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def share(part: float, whole: float) -> str:
    """A percentage that says 100% only for everything, and 0% only for nothing."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if 0 < percent < 1:
        return "<1%"
    if 99 < percent < 100:
        return ">99%"
    return f"{percent:.0f}%"


def clipped(text: str, most: int = 120) -> str:
    """One line of a text."""
    line = " ".join(text[: 4 * most].split())
    return line if len(line) <= most and len(text) <= 4 * most else line[: most - 1] + "…"


def marked(text: str, places: list[tuple[int, int]]) -> Markup:
    """A text with its matched words marked."""
    parts, at = [], 0
    for start, end in sorted(places):
        if start >= at:
            parts += [escape(text[at:start]), Markup("<mark>{}</mark>").format(text[start:end])]
            at = end
    return Markup("").join([*parts, escape(text[at:])])
