"""What a tenant may have and use, and what it has."""

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
    "chunks": "chunks in the index", "tokens": "tokens a day", "money": "money a day",
}  # fmt: skip


def _bound(name: str) -> Callable[[F], F]:
    kind = click.FloatRange(min=0) if name == "money" else click.IntRange(min=0)
    return click.option(f"--{name}", type=kind, help=f"At most so many {_MEANING[name]}; 0: any.")


@command("limits", "evervec --tenant acme limits --records 100000 --tokens 5000000")
@click.option(
    "--weight",
    type=click.IntRange(1, MOST_WEIGHT),
    help="Length of its turn in the queue; others: 1.",
)
@_bound("kinds")
@_bound("records")
@_bound("bytes")
@_bound("chunks")
@_bound("tokens")
@_bound("money")
@click.option("--reset", is_flag=True, help="As the settings say for all tenants.")
@as_json
def limits(where: Where, reset: bool, as_json: bool, **given: Any) -> None:
    """What a tenant has and may have; with options, change what it may have.

    Writes beyond a bound are refused; deletes and edits that make nothing larger are not. When
    the tokens or the money of a day are used up, the tenant's jobs wait for the next day (UTC).
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    with where.opened() as ev:
        if reset or wanted:
            ev.set_limits(replace(Limits() if reset else ev.limits(), **wanted))
        used = ev.usage()
    if as_json:
        print_json(used)
        return
    print_table((f"of tenant {used.tenant}", "has", "may have"), usage_rows(used))
    say(f"its turn in the queue has weight {used.limits.weight}")
    if used.waits_until is not None:
        say(f"its jobs wait until {used.waits_until:%Y-%m-%d %H:%M} UTC")


def usage_rows(used: Usage) -> list[tuple[str, str, str]]:
    """What a tenant has and may have, for people."""
    rows = []
    for name, meaning in _MEANING.items():
        bound = getattr(used.limits, name)
        rows.append((meaning, f"{getattr(used, name):,}", f"{bound:,}" if bound else "any"))
    return rows
