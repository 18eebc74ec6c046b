"""Numbers and times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


def duration(seconds: float) -> str:
    """A length of time in one unit."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def counted(count: int, noun: str) -> str:
    """A number with its noun, in the singular or plural."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def clock_time(moment: float, now: float) -> str:
    """A moment by the clock; with its day, if that is another."""
    at, today = (datetime.fromtimestamp(seconds, UTC) for seconds in (moment, now))
    same_day = at.date() == today.date()
    return f"{at:%H:%M} UTC" if same_day else f"{at:%b %d, %H:%M} UTC"


def shortened(text: str, most: int) -> str:
    """A text in one line of limited length."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
