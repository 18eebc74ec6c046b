"""Commands for access: API keys of the service, the audit log, limits of tenants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import click

from evervec.cli.app import Where, command, write_audit
from evervec.cli.durations import read_time
from evervec.cli.output import facts, print_json, print_table, say, show, show_list
from evervec.model.usage import MOST_WEIGHT, Limits
from evervec.server.audit import Audit
from evervec.server.keys import Keys, NewKey
from evervec.stores.service_values import AuditChoice

F = TypeVar("F", bound=Callable[..., Any])

_QUOTAS = {
    "kinds": "kinds", "records": "records", "bytes": "bytes of titles, texts and metadata",
    "chunks": "chunks in the index", "tokens": "tokens per day", "money": "money per day",
}  # fmt: skip


@click.group("keys", epilog="\b\nExample:\n  evervec --tenant acme keys create --role reader")
def keys() -> None:
    """Manage the service's API keys: create, list, rotate, revoke."""


@command("create", "evervec --tenant acme keys create --agent crawler --role writer")
@click.option("--agent", default="default", show_default=True, help="Name of the key's user.")
@click.option(
    "--role", default="writer", show_default=True, type=click.Choice(["reader", "writer", "admin"]),
    help="admin: full access to all tenants.",
)  # fmt: skip
@click.option("--expires", metavar="TIME", help="How long the key is valid, e.g. 90d.  [no expiry]")
def create(where: Where, agent: str, role: str, expires: str | None, as_json: bool) -> None:
    """Create a key; it is shown only once."""
    length = read_time(expires) if expires else None
    with where.opened(make=True) as ev:
        made = Keys(ev.store).create(ev.tenant, agent, role, length)
        write_audit(ev, "key.create", made.info.label)
    _show_made(made, as_json)


@command("list", "evervec keys list")
def list_keys(where: Where, as_json: bool) -> None:
    """List keys by their prefix; with --tenant, those of one tenant."""
    with where.opened() as ev:
        found = Keys(ev.store).list(where.tenant)
    show_list(as_json, found, "no keys; create one with `evervec keys create`", {
        "key": lambda key: f"{key.prefix}…", "tenant": "tenant", "agent": "agent", "role": "role",
        "created": "created_at", "last used": "last_used_at", "expires": "expires_at",
        "revoked": "revoked_at",
    })  # fmt: skip


@command("revoke", "evervec keys revoke ev_3f9a1c2b7d04")
@click.argument("id")
def revoke(where: Where, id: str, as_json: bool) -> None:
    """Revoke a key, effective immediately."""
    with where.opened() as ev:
        Keys(ev.store).revoke(id)
        write_audit(ev, "key.revoke", id[:15], everyone=True)
    show(as_json, {"revoked": id}, "revoked")


@command("rotate", "evervec keys rotate ev_3f9a1c2b7d04 --overlap 1d")
@click.argument("id")
@click.option(
    "--overlap", metavar="TIME", default="1d", show_default=True,
    help="How long the old key stays valid; 0s: it expires at once.",
)  # fmt: skip
def rotate(where: Where, id: str, overlap: str, as_json: bool) -> None:
    """Replace a key; the old one stays valid for a while."""
    length = read_time(overlap)
    with where.opened() as ev:
        made = Keys(ev.store).rotate(id, length)
        write_audit(ev, "key.rotate", f"{id[:15]} by {made.info.label}", everyone=True)
    _show_made(made, as_json)


@command("audit", "evervec audit --since 7d --action key.revoke")
@click.option("--action", help="Only this action, e.g. record.delete.")
@click.option("--key", "key_id", metavar="ID", help="Only actions with this key.")
@click.option("--since", metavar="TIME", help="Only the last TIME, e.g. 7d.")
@click.option(
    "--limit",
    default=50,
    show_default=True,
    type=click.IntRange(1),
    help="Maximum number of entries.",
)
def audit(where: Where, action: str | None, key_id: str | None, since: str | None, limit: int,
          as_json: bool) -> None:  # fmt: skip
    """Show the audit log: changes of keys, jobs and models, and deletes; newest first."""
    length = read_time(since) if since else None
    with where.opened() as ev:
        begins = None if length is None else ev.store.now() - length.total_seconds()
        known = key_id.removeprefix("ev_")[:12] if key_id else None
        chosen = AuditChoice(where.tenant, action, known, None, begins)
        found = Audit(ev.store).list(chosen, limit)
    show_list(as_json, found, "no entries", {
        "when": "at", "who": "agent", "key": "key_id", "tenant": "tenant", "action": "action",
        "target": "target", "outcome": "outcome", "from": "client", "request": "request_id",
    })  # fmt: skip


def _quota_options(function: F) -> F:
    for name, meaning in reversed(_QUOTAS.items()):
        kind = click.FloatRange(min=0) if name == "money" else click.IntRange(min=0)
        option = click.option(f"--{name}", type=kind, help=f"Maximum {meaning}; 0: no limit.")
        function = option(function)
    return function


@command("limits", "evervec --tenant acme limits --records 100000 --tokens 5000000")
@click.option(
    "--weight",
    type=click.IntRange(1, MOST_WEIGHT),
    help="Share of the queue, relative to other tenants (1 by default).",
)
@_quota_options
@click.option("--reset", is_flag=True, help="Use the settings for all tenants again.")
def limits(where: Where, reset: bool, as_json: bool, **given: Any) -> None:
    """Show a tenant's usage and quotas; with options, change the quotas.

    Writes beyond a quota are rejected, except deletes and edits that do not grow anything. When
    the day's tokens or money are used up, the tenant's jobs wait for the next day (UTC), and
    its searches answer from text.
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    with where.opened() as ev:
        if reset or wanted:
            ev.set_limits(replace(Limits() if reset else ev.limits(), **wanted))
        used = ev.usage()
    if as_json:
        print_json(used)
        return
    rows = []
    for name, meaning in _QUOTAS.items():
        bound = getattr(used.limits, name)
        rows.append((meaning, f"{getattr(used, name):,}", f"{bound:,}" if bound else "no limit"))
    print_table((f"tenant {used.tenant}", "used", "quota"), rows)
    say(f"weight in the queue: {used.limits.weight}")
    if used.waits_until is not None:
        say(f"jobs wait until {used.waits_until:%Y-%m-%d %H:%M} UTC")


def _show_made(made: NewKey, as_json: bool) -> None:
    if as_json:
        print_json({"key": made.key, **facts(made.info)})
        return
    say(made.key)
    say(
        f"role {made.info.role}, tenant {made.info.tenant}; save this key, it is shown only once",
        err=True,
    )


for each in (create, list_keys, rotate, revoke):
    keys.add_command(each)
