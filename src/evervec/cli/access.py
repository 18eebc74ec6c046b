"""Commands for access to the service: keys, audit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, as_json, command, note
from evervec.cli.jobs import read_time
from evervec.cli.output import print_json, print_table, say

if TYPE_CHECKING:
    from evervec.server.keys import Key, NewKey


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
@as_json
def create(where: Where, agent: str, role: str, expires: str | None, as_json: bool) -> None:
    """Create a key; it is shown only once."""
    from evervec.server.keys import Keys

    length = read_time(expires) if expires else None
    with where.opened(make=True) as ev:
        made = Keys(ev.store).create(ev.tenant, agent, role, length)
        note(ev, "key.create", _target(made.info))
    _show_made(made, as_json)


@command("list", "evervec keys list")
@as_json
def list_keys(where: Where, as_json: bool) -> None:
    """List keys by their prefix; with --tenant, those of one tenant."""
    from evervec.server.keys import Keys

    with where.opened() as ev:
        found = Keys(ev.store).list(where.tenant)
    if as_json:
        print_json([_facts(key) for key in found])
    elif not found:
        say("no keys; create one with `evervec keys create`")
    else:
        print_table(
            ("key", "tenant", "agent", "role", "created", "last used", "expires", "revoked"),
            [
                (f"{k.prefix}…", k.tenant, k.agent, k.role, k.created_at, k.last_used_at,
                 k.expires_at, k.revoked_at)
                for k in found
            ],
        )  # fmt: skip


@command("revoke", "evervec keys revoke ev_3f9a1c2b7d04")
@click.argument("id")
@as_json
def revoke(where: Where, id: str, as_json: bool) -> None:
    """Revoke a key, effective immediately."""
    from evervec.server.keys import Keys

    with where.opened() as ev:
        Keys(ev.store).revoke(id)
        note(ev, "key.revoke", id[:15], everyone=True)
    if as_json:
        print_json({"revoked": id})
    else:
        say("revoked")


@command("rotate", "evervec keys rotate ev_3f9a1c2b7d04 --overlap 1d")
@click.argument("id")
@click.option(
    "--overlap", metavar="TIME", default="1d", show_default=True,
    help="How long the old key stays valid; 0s: it expires at once.",
)  # fmt: skip
@as_json
def rotate(where: Where, id: str, overlap: str, as_json: bool) -> None:
    """Create a key with the same permissions, and let the old one expire."""
    from evervec.server.keys import Keys

    length = read_time(overlap)
    with where.opened() as ev:
        made = Keys(ev.store).rotate(id, length)
        note(ev, "key.rotate", f"{id[:15]} by {_target(made.info)}", everyone=True)
    _show_made(made, as_json)


@command("audit", "evervec audit --since 7d --action key.revoke")
@click.option("--action", help="Only this action, e.g. record.delete.")
@click.option("--key", "key_id", metavar="ID", help="Only actions with this key.")
@click.option("--since", metavar="TIME", help="Only the last TIME, e.g. 7d.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1))
@as_json
def audit(
    where: Where,
    action: str | None,
    key_id: str | None,
    since: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """Show the audit log: changes of keys, jobs and models, and deletes; newest first."""
    from evervec.server.audit import Audit
    from evervec.stores.values import AuditChoice

    length = read_time(since) if since else None
    with where.opened() as ev:
        begins = None if length is None else ev.store.now() - length.total_seconds()
        known = key_id.removeprefix("ev_")[:12] if key_id else None
        chosen = AuditChoice(where.tenant, action, known, None, begins)
        found = Audit(ev.store).list(chosen, limit)
    if as_json:
        print_json(found)
    elif not found:
        say("no entries")
    else:
        print_table(
            ("when", "who", "key", "tenant", "action", "target", "outcome", "from", "request"),
            [
                (e.at, e.agent, e.key_id, e.tenant, e.action, e.target, e.outcome, e.client,
                 e.request_id)
                for e in found
            ],
        )  # fmt: skip


def _show_made(made: NewKey, as_json: bool) -> None:
    if as_json:
        print_json({"key": made.key, **_facts(made.info)})
        return
    say(made.key)
    say(
        f"role {made.info.role}, tenant {made.info.tenant}; save this key, it is shown only once",
        err=True,
    )


def _facts(key: Key) -> dict[str, object]:
    hidden = ("parent", "kinds")  # only tokens have these
    return {name: getattr(key, name) for name in type(key).__slots__ if name not in hidden}


def _target(key: Key) -> str:
    return f"{key.id} ({key.role} of {key.tenant}, agent {key.agent})"


for each in (create, list_keys, rotate, revoke):
    keys.add_command(each)
