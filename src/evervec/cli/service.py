"""Commands for the service: serve, dispatch, and its keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import click

from evervec.cli.app import Where, as_json, command
from evervec.cli.jobs import read_time
from evervec.cli.output import print_json, print_table, say
from evervec.errors import SettingsError

if TYPE_CHECKING:
    from evervec.keys import Key

_HERE = "http://127.0.0.1:8080"
"""where `serve` listens if nothing else is said"""


@command("serve", "evervec --store notes.db serve --port 8080")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535))
@click.option(
    "--workers-inside", "workers", default=1, show_default=True, type=click.IntRange(0),
    help="Workers in this process; 0 to leave embedding to `evervec worker`.",
)  # fmt: skip
def serve(where: Where, host: str, port: int, workers: int) -> None:
    """Serve the store over HTTP, with a worker inside.

    Without keys only this machine may ask, and may do everything; `evervec keys create` makes
    the first.
    """
    try:
        from evervec.server.running import serve as run
    except ImportError as error:
        raise SettingsError(
            f"the service needs the package {error.name}: pip install 'evervec[server]'"
        ) from error
    root = logging.getLogger()
    root.setLevel(min(root.level, logging.WARNING))
    with where.opened(make=True) as ev:
        run(ev, host, port, workers, lambda line: say(line, err=True))


@command("dispatch", "evervec dispatch --to https://app.example.com")
@click.option(
    "--to", metavar="URL", help="The service that does the jobs.  [public_url, else this machine's]"
)
@click.option(
    "--limit", default=10, show_default=True, type=click.IntRange(1), help="Jobs at most."
)
@as_json
def dispatch(where: Where, to: str | None, limit: int, as_json: bool) -> int:
    """Hand out due jobs once, for a cron where no worker runs."""
    with where.opened() as ev:
        done = ev.dispatcher.dispatch(limit, to or ev.settings.public_url or _HERE)
        why = ev.provider.pauses_because()
    if as_json:
        print_json(done)
    else:
        say(f"{done.claimed} claimed, {done.published} handed over, {done.released} released")
        if why:
            say(f"the provider waits: {why}", err=True)
    return 1 if done.released else 0


@click.group("keys", epilog="\b\nExample:\n  evervec --tenant acme keys create --role reader")
def keys() -> None:
    """Keys of the service: create, list, revoke."""


@command("create", "evervec --tenant acme keys create --agent crawler --role writer")
@click.option("--agent", default="default", show_default=True, help="Who will use it.")
@click.option(
    "--role", default="writer", show_default=True, type=click.Choice(["reader", "writer", "admin"]),
    help="admin: of the whole platform.",
)  # fmt: skip
@click.option("--expires", metavar="TIME", help="How long it is good, e.g. 90d.  [for ever]")
@as_json
def create(where: Where, agent: str, role: str, expires: str | None, as_json: bool) -> None:
    """Make a key, and show it this once."""
    from evervec.keys import Keys

    length = read_time(expires) if expires else None
    with where.opened(make=True) as ev:
        made = Keys(ev.store).create(ev.tenant, agent, role, length)
    if as_json:
        print_json({"key": made.key, **_facts(made.info)})
        return
    say(made.key)
    say(f"role {role}, tenant {made.info.tenant}; it is shown this once: keep it", err=True)


@command("list", "evervec keys list")
@as_json
def list_keys(where: Where, as_json: bool) -> None:
    """List keys by how they begin; with --tenant, those of one tenant."""
    from evervec.keys import Keys

    with where.opened() as ev:
        found = Keys(ev.store).list(where.tenant)
    if as_json:
        print_json([_facts(key) for key in found])
    elif not found:
        say("no keys; `evervec keys create` makes one")
    else:
        print_table(
            ("key", "tenant", "agent", "role", "made", "used", "expires", "revoked"),
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
    """Let a key open nothing any more, at once."""
    from evervec.keys import Keys

    with where.opened() as ev:
        Keys(ev.store).revoke(id)
    if as_json:
        print_json({"revoked": id})
    else:
        say("revoked")


def _facts(key: Key) -> dict[str, object]:
    return {name: getattr(key, name) for name in type(key).__slots__}


for each in (create, list_keys, revoke):
    keys.add_command(each)
