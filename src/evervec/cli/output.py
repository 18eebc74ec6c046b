"""What commands print: JSON, plain lines when piped, colours and bars on a terminal."""

from __future__ import annotations

import dataclasses
import json
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from evervec.model.phrases import counted, duration
from evervec.model.records import Hit, Record
from evervec.model.reports import Estimate, Stats
from evervec.model.streams import StreamState
from evervec.telemetry.visible import visible_line, visible_text

if TYPE_CHECKING:
    from evervec.facade import Evervec

_STYLE = f"\ufdd0{secrets.token_hex(8)}"
"""marks a style until it is printed; random, so that no record's text can contain it"""
_BEYOND_JSON = re.compile(r"[\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""control characters that JSON allows unescaped"""
_STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}


def styled(text: Any, *styles: str) -> str:
    """Mark a text as bold, dim or coloured, for `say`."""
    return "".join(f"{_STYLE}{_STYLES[style]}m" for style in styles) + f"{text}{_STYLE}0m"


def say(line: Any = "", *, err: bool = False) -> None:
    """Print one line. Control characters are escaped, so that a record's text cannot send
    commands to the operator's terminal."""
    click.echo(visible_line(str(line)).replace(_STYLE, "\x1b["), err=err)


def say_text(text: str) -> None:
    """Print a text of several lines; only line feeds and tabs are kept unescaped."""
    click.echo(visible_text(text).replace(_STYLE, "\x1b["))


def print_json(value: Any) -> None:
    text = json.dumps(value, default=_plain, ensure_ascii=False, indent=2)
    click.echo(_BEYOND_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def facts(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that its `repr` shows."""
    return {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.repr}


def _plain(value: Any) -> Any:
    if isinstance(value, Record | Hit):
        from evervec.records.kinds import plain_data  # numpy only where it is used

        return facts(value) | {"data": plain_data(value.data)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return facts(value)
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value)


def print_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print columns as wide as their content; lines are cut at the terminal's width."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(head)]
    lines = [list(head), *cells]
    room = _columns()
    for number, line in enumerate(lines):
        text = "  ".join(value.ljust(width) for value, width in zip(line, widths, strict=True))
        text = text.rstrip()
        if room and len(text) > room:
            text = text[: room - 1] + "…"
        say(styled(text, "bold") if number == 0 else text)


def show(as_json: bool, facts: Any, *lines: str) -> None:
    """Print the result of a command: facts as JSON, or lines for people."""
    if as_json:
        print_json(facts)
    else:
        for line in lines:
            say(line)


def show_list(
    as_json: bool,
    found: Sequence[Any],
    nothing: str,
    columns: Mapping[str, str | Callable[[Any], Any]],
) -> None:
    """Print values as JSON or as a table, with the attribute or function for each column; or that
    there are none."""
    if as_json:
        print_json(found)
    elif not found:
        say(nothing)
    else:
        parts = [attrgetter(c) if isinstance(c, str) else c for c in columns.values()]
        print_table(list(columns), [[part(value) for part in parts] for value in found])


def stream_line(stream: StreamState) -> str:
    """How far a followed stream is."""
    behind = "nothing behind" if not stream.lag else f"{stream.lag} messages behind"
    state = (
        "not reported yet"
        if stream.seen_at is None
        else f"{behind}, followed {ago(stream.seen_at)}"
    )
    line = f"{stream.name} as {stream.kind}: {state}"
    if stream.failed:
        hint = "  (see `evervec follow --failed`)"
        line += ", " + styled(f"{stream.failed} set aside", "red") + hint
    return line


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return ago(value)
    if isinstance(value, float):
        return f"{value:.1f}"
    return visible_line(" ".join(str(value).split()))


def _columns() -> int:
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 0


def ago(moment: datetime | None) -> str:
    """Time since or until a moment, in one unit."""
    if moment is None:
        return "never"
    seconds = (datetime.now(UTC) - moment).total_seconds()
    length = duration(abs(seconds))
    return f"in {length}" if seconds < -1 else f"{length} ago"


def estimate_line(plan: Estimate) -> str:
    money = f", {plan.money:.4f}" if plan.money else ""
    took = "" if plan.seconds is None else f"; about {duration(plan.seconds)} of embedding"
    return (
        f"{counted(plan.records, 'record')}, about {counted(plan.chunks, 'chunk')} and "
        f"{counted(plan.tokens, 'token')}{money}{took}, estimated from a sample"
    )


def resume_command(stats: Stats) -> str:
    """The command that ends the pause shown in `stats`."""
    return " ".join(["evervec", *(f"--tenant {name}" for name in stats.paused_tenants), "resume"])


def embedder_advice(ev: Evervec, otherwise: str) -> str:
    """Advice when there is no embedder: `--app` if the store's embedder is the application's
    own, else `otherwise`."""
    from evervec.opening import needs_program

    spec = needs_program(ev.store)
    if spec is None:
        return otherwise
    return (
        f"the embedder {spec.provider} {spec.model} is defined in your own program: give "
        "--app module:ev, where ev is the result of evervec.open(..., embedder=...)"
    )


class Progress:
    """The progress of a long task; this one shows nothing."""

    def advance(self, count: int = 1) -> None: ...

    def expect(self, total: int, *, about: bool = False) -> None: ...


@contextmanager
def progress(
    what: str, total: int | None = None, *, quiet: bool = False, unit: str = ""
) -> Iterator[Progress]:
    """A bar with rate and remaining time on a terminal, otherwise a plain line every 5 s."""
    if quiet:
        yield Progress()
    elif sys.stderr.isatty():
        with _bar(f"{what} {unit}".rstrip(), total) as bar:
            yield bar
    else:
        lines = _Lines(what, total, unit)
        yield lines
        lines.end()


def pace(per_second: float) -> str:
    """Format a rate: per second, or per minute if less than one per second."""
    if per_second >= 9.5:
        return f"{per_second:,.0f}/s"
    return f"{per_second:.1f}/s" if per_second >= 0.95 else f"{per_second * 60:.1f}/min"


class _Lines(Progress):
    def __init__(self, what: str, total: int | None, unit: str, every: float = 5.0) -> None:
        self._what, self._total, self._unit, self._every = what, total, unit, every
        self._about = False
        self._count = self._last = 0
        self._began = self._said = time.monotonic()

    def expect(self, total: int, *, about: bool = False) -> None:
        self._total, self._about = total, about

    def advance(self, count: int = 1) -> None:
        self._count += count
        if time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            self._say()

    def end(self) -> None:
        self._about = False
        if self._count != self._last:
            self._say()

    def _say(self) -> None:
        self._last = self._count
        passed = max(time.monotonic() - self._began, 1e-9)
        rate, unit = self._count / passed, f" {self._unit}" * bool(self._unit)
        of = speed = ""
        total = max(self._total or 0, self._count)  # jobs that were added meanwhile are not in it
        if self._total:
            of = f" of {'about ' * self._about}{total:,}"
        if self._count:
            speed = f", {pace(rate)}"
            rest = (total - self._count) / rate
            speed += f", {duration(rest)} left" if rest >= 1 else ""
        say(f"{self._what}: {self._count:,}{of}{unit}{speed}", err=True)


@contextmanager
def _bar(what: str, total: int | None) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"), TimeElapsedColumn(), TimeRemainingColumn(),
    )  # fmt: skip
    with RichProgress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(what, total=total, rate="")

        class Bar(Progress):
            def advance(self, count: int = 1) -> None:
                known = shown.tasks[task]
                if known.total is not None and known.completed + count > known.total:
                    shown.update(task, total=known.completed + count)
                rate = pace(known.speed) if known.speed else ""
                shown.update(task, advance=count, rate=rate)

            def expect(self, total: int, *, about: bool = False) -> None:
                shown.update(task, total=total)

        yield Bar()
