"""A tenant's quotas and usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from evervec.cli.app import Where, as_json, command
from evervec.cli.output import print_json, print_table, say
from evervec.model.reports import MOST_WEIGHT, Limits

if TYPE_CHECKING:
    from evervec.model.reports import Usage

F = TypeVar("F", bound=Callable[..., Any])

_MEANING = {
    "kinds": "kinds", "records": "records", "bytes": "bytes of titles, texts and metadata",
    "chunks": "chunks in the index", "tokens": "tokens per day", "money": "money per day",
}  # fmt: skip


def _bound(name: str) -> Callable[[F], F]:
    kind = click.FloatRange(min=0) if name == "money" else click.IntRange(min=0)
    return click.option(f"--{name}", type=kind, help=f"Maximum {_MEANING[name]}; 0: no limit.")


@command("limits", "evervec --tenant acme limits --records 100000 --tokens 5000000")
@click.option(
    "--weight",
    type=click.IntRange(1, MOST_WEIGHT),
    help="Share of the queue, relative to other tenants (1 by default).",
)
@_bound("kinds")
@_bound("records")
@_bound("bytes")
@_bound("chunks")
@_bound("tokens")
@_bound("money")
@click.option("--reset", is_flag=True, help="Use the settings for all tenants again.")
@as_json
def limits(where: Where, reset: bool, as_json: bool, **given: Any) -> None:
    """Show a tenant's usage and quotas; with options, change the quotas.

    Writes beyond a quota are rejected, except deletes and edits that do not grow anything. When
    the day's tokens or money are used up, the tenant's jobs wait for the next day (UTC).
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    with where.opened() as ev:
        if reset or wanted:
            ev.set_limits(replace(Limits() if reset else ev.limits(), **wanted))
        used = ev.usage()
    if as_json:
        print_json(used)
        return
    print_table((f"tenant {used.tenant}", "used", "quota"), usage_rows(used))
    say(f"weight in the queue: {used.limits.weight}")
    if used.waits_until is not None:
        say(f"jobs wait until {used.waits_until:%Y-%m-%d %H:%M} UTC")


def usage_rows(used: Usage) -> list[tuple[str, str, str]]:
    """Usage and quotas of a tenant, as rows of a table."""
    rows = []
    for name, meaning in _MEANING.items():
        bound = getattr(used.limits, name)
        rows.append((meaning, f"{getattr(used, name):,}", f"{bound:,}" if bound else "no limit"))
    return rows
