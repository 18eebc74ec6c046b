"""One line for each comparison: the ratio is evervec's number over the other's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """What a ratio (or evervec's own number) has to keep."""

    text: str
    kept: Callable[[float], bool]


def at_least(least: float, *, aim: bool = False) -> Target:
    return Target(f"{'aim ' if aim else ''}≥ {least:.3g}", lambda ratio: ratio >= least)


def at_most(most: float) -> Target:
    return Target(f"≤ {most:.3g}", lambda ratio: ratio <= most)


@dataclass(frozen=True)
class Line:
    """A number of evervec's and what stands beside it; either may stand alone."""

    what: str
    unit: str
    evervec: float | None
    beside: str = ""
    other: float | None = None
    target: Target | None = None
    own: bool = False
    """the target is for evervec's number itself, not for the ratio"""

    @property
    def ratio(self) -> float | None:
        return self.evervec / self.other if self.evervec is not None and self.other else None

    @property
    def met(self) -> bool | None:
        judged = self.evervec if self.own else self.ratio
        return None if self.target is None or judged is None else self.target.kept(judged)


_HEAD = ("what", "evervec", "beside", "", "ratio", "target", "met")


def show(title: str, lines: Sequence[Line]) -> None:
    """Print a table; numbers are aligned to the right."""
    rows = [_HEAD, *map(_cells, lines)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_HEAD))]
    print(f"\n{title}")
    for number, row in enumerate(rows):
        cells = (
            cell.rjust(width) if place in (1, 3, 4) else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  " + "  ".join(cells).rstrip())
        if number == 0:
            print("  " + "  ".join("─" * width for width in widths))


def _cells(line: Line) -> tuple[str, ...]:
    unit = f" {line.unit}"
    target = line.target.text + (unit if line.own else "") if line.target else ""
    return (
        line.what,
        "" if line.evervec is None else _number(line.evervec) + unit,
        line.beside,
        "" if line.other is None else _number(line.other) + unit,
        "" if line.ratio is None else f"{line.ratio:.2f}",
        target,
        {None: "", True: "yes", False: "NO"}[line.met],
    )


def _number(value: float) -> str:
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
